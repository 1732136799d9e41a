"""`exo status --links`, and what `exo doctor` says of the hardware."""

from typing import Any

import msgspec
import pytest

from exo.ops.doctor import Facts, diagnose
from exo.ops.doctor_hardware import HardwareFacts
from exo.ops.examine_hardware import examine_hardware
from exo.ops.layers import load_settings
from exo.ops.links_view import (
    LINK_COLUMNS,
    FindingView,
    TopologyView,
    list_findings,
    list_links,
    show_latency,
)


def make_view(**changes: Any) -> TopologyView:
    link = {
        "source": "b",
        "target": "a",
        "kind": "thunderbolt",
        "interface": "en3",
        "local_address": "10.0.0.2",
        "remote_address": "10.0.0.1",
        "latency_ms": 0.1234,
        "bandwidth": 3_900_000_000,
        "age": 61,
        "stale": False,
        "a_key_of_a_newer_node": 1,
    }
    back = {**link, "source": "a", "target": "b", "interface": "", "bandwidth": 0, "latency_ms": 25, "stale": True}
    finding = {"code": "macmon_missing", "message": "macmon is not installed", "remedy": "install it", "node": "a"}
    content = {
        "nodes": {"a": {"name": "anna"}, "b": {"name": "bert"}},
        "links": [link, back],
        "findings": [finding, {"code": "thunderbolt_bridge_loop", "message": "a ring"}],
        **changes,
    }
    return msgspec.convert(content, TopologyView)


def test_links_are_rows_in_the_order_of_names() -> None:
    back, link = list_links(make_view())
    assert len(LINK_COLUMNS) == len(link) == len(back)
    assert link[:8] == ["bert", "anna", "thunderbolt", "en3", "0.12 ms", "3.9 GB/s", "fresh", "1m01s"]
    assert back[:7] == ["anna", "bert", "thunderbolt", "-", "25 ms", "-", "stale"]


def test_a_node_without_a_name_is_shown_by_its_id() -> None:
    assert list_links(make_view(nodes={}))[0][:2] == ["a", "b"]


@pytest.mark.parametrize(("latency", "text"), [(0.05, "0.05 ms"), (9.994, "9.99 ms"), (120.4, "120 ms")])
def test_latency_has_the_digits_that_matter(latency: float, text: str) -> None:
    assert show_latency(latency) == text


def test_findings_name_their_node_and_say_what_to_do() -> None:
    first, second = list_findings(make_view())
    assert first == "anna: macmon is not installed [macmon_missing]\n  -> install it"
    assert second == "a ring [thunderbolt_bridge_loop]"


def test_the_doctor_tells_of_hardware() -> None:
    fault = FindingView(code="macmon_crashed", message="it ended", remedy="install another", node="anna")
    found = diagnose(Facts(version="1", hardware=HardwareFacts(findings=(fault,))))
    (finding,) = [one for one in found if one.subject == "macmon crashed"]
    assert (finding.severity, finding.message, finding.remedy) == ("warning", "anna: it ended", "install another")


async def test_a_machine_without_a_node_is_looked_at_itself(tmp_path: Any) -> None:
    loaded = load_settings({"data_dir": tmp_path}, {}, read_file=False)
    assert await examine_hardware(loaded, platform="linux") == HardwareFacts()


async def test_on_a_mac_macmon_and_the_ports_are_looked_at(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    loaded = load_settings({"data_dir": tmp_path}, {}, read_file=False)
    facts = await examine_hardware(loaded, platform="darwin")
    assert [finding.code for finding in facts.findings] == ["macmon_missing"]
