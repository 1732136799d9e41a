"""The compose file: two nodes that can find each other, with settings that exist."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from exo.ops.layers import load_settings
from exo.ops.service_files import make_stop_seconds
from support.tracked import ROOT

FOLDER = ROOT / "ops" / "units" / "compose"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]


def test_every_node_starts_with_its_settings(services: dict[str, Any], tmp_path: Path) -> None:
    assert sorted(services) == ["one", "two"]
    for name, service in services.items():
        loaded = load_settings({"data_dir": tmp_path}, service["environment"])
        assert loaded.warnings == ()
        assert (loaded.settings.name, service["hostname"]) == (name, name)
        assert not loaded.settings.discovery
        assert int(service["stop_grace_period"].removesuffix("s")) >= make_stop_seconds(loaded.settings.shutdown_grace)


def test_the_nodes_join_each_other_by_address(services: dict[str, Any], tmp_path: Path) -> None:
    settings = {
        name: load_settings({"data_dir": tmp_path}, service["environment"]).settings
        for name, service in services.items()
    }
    assert len({one.namespace for one in settings.values()}) == 1
    assert settings["one"].bootstrap_peers == (f"two:{settings['two'].cluster_port}",)
    assert settings["two"].bootstrap_peers == (f"one:{settings['one'].cluster_port}",)


def test_the_api_is_open_to_this_machine_only(services: dict[str, Any]) -> None:
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_the_image_is_built_from_the_clone(services: dict[str, Any]) -> None:
    build = services["one"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT
    lines = (ROOT / build["dockerfile"]).read_text().splitlines()
    assert 'ENTRYPOINT ["exo"]' in lines
    assert "USER exo" in lines
    ports = next(line.split()[1:] for line in lines if line.startswith("EXPOSE"))
    assert ports == ["52414", "52415"]
