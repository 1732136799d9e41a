"""Settings: the layers, their order, and one line for whatever cannot be read."""

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from exo.ops.errors import SettingsError, UsageError
from exo.ops.layers import Loaded, load_settings
from exo.ops.settings import Settings, describe_settings
from exo.ops.upstream import translate_flags


def load(home: Path, variables: dict[str, str] | None = None, **flags: object) -> Loaded:
    return load_settings(flags, {"HOME": str(home), **(variables or {})})


def write_config(home: Path, text: str) -> None:
    (home / "config.toml").write_text(text)


def test_without_any_layer_all_is_at_its_default(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.settings == Settings()
    assert loaded.origins == {}
    assert loaded.warnings == ()


def test_flags_win_over_variables_over_the_file_over_defaults(tmp_path: Path) -> None:
    write_config(tmp_path, "port = 1\nhost = 'a'\nname = 'a'\n")
    loaded = load(tmp_path, {"EXO_DATA_DIR": str(tmp_path), "EXO_PORT": "2", "EXO_HOST": "b"}, port=3)
    assert (loaded.settings.port, loaded.settings.host, loaded.settings.name) == (3, "b", "a")
    assert loaded.settings.namespace == version("exo")
    assert loaded.origins == {
        "data_dir": "environment variable EXO_DATA_DIR",
        "port": "--port",
        "host": "environment variable EXO_HOST",
        "name": f"{tmp_path}/config.toml: name",
    }


def test_every_kind_of_value_can_come_from_a_variable(tmp_path: Path) -> None:
    variables = {
        "EXO_OFFLINE": "true",
        "EXO_WORKER": "0",
        "EXO_KEEP_ALIVE": "2.5",
        "EXO_MODELS": "starter, org/other",
        "EXO_MODELS_DIRS": f"/a{os.pathsep}/b c",
        "EXO_NATS_SERVER": "/opt/nats-server",
        "EXO_DENSE_WEIGHTS": "off",
        "EXO_SCRIPTED": "tokens_per_second=30, load_seconds=0.5",
    }
    settings = load(tmp_path, variables).settings
    assert (settings.offline, settings.worker, settings.keep_alive) == (True, False, 2.5)
    assert settings.models == ("starter", "org/other")
    assert settings.models_dirs == (Path("/a"), Path("/b c"))
    assert settings.nats_server == Path("/opt/nats-server")
    assert settings.dense_weights == "off"
    assert settings.scripted == {"tokens_per_second": 30, "load_seconds": 0.5}


def test_words_are_separated_by_commas_or_spaces(tmp_path: Path) -> None:
    variables = {"EXO_BOOTSTRAP_PEERS": "10.0.0.1, desk:52414 /ip4/10.0.0.2/tcp/4001,", "EXO_MODELS_DIRS": "/a b"}
    settings = load(tmp_path, variables).settings
    assert settings.bootstrap_peers == ("10.0.0.1", "desk:52414", "/ip4/10.0.0.2/tcp/4001")
    assert settings.models_dirs == (Path("/a b"),)


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, {"EXO_PORT": "", "EXO_NATS_SERVER": ""}).settings == Settings()


def test_a_tilde_is_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = load(tmp_path, {"EXO_DEFAULT_MODELS_DIR": "~/models"}).settings
    assert settings.default_models_dir == tmp_path / "models"


@pytest.mark.parametrize(
    ("variables", "parts"),
    [
        ({"EXO_PORT": "abc"}, ["environment variable EXO_PORT = 'abc'", "`int`", "port of the API"]),
        ({"EXO_PORT": "70000"}, ["EXO_PORT = '70000'", "<= 65535"]),
        ({"EXO_OFFLINE": "perhaps"}, ["EXO_OFFLINE = 'perhaps'", "`bool`"]),
        ({"EXO_DENSE_WEIGHTS": "some"}, ["EXO_DENSE_WEIGHTS = 'some'", "auto"]),
        ({"EXO_SCRIPTED": "tokens_per_second=fast"}, ["EXO_SCRIPTED", "`float`"]),
        ({"EXO_NAME": "x" * 65}, ["EXO_NAME", "length <= 64"]),
        ({"EXO_LIBP2P_NAMESPACE": "x"}, ["EXO_LIBP2P_NAMESPACE", "EXO_NAMESPACE"]),
        ({"EXO_NAMESPACE": "x" * 65}, ["EXO_NAMESPACE", "length <= 64", "name of the cluster"]),
        ({"EXO_CLUSTER_PORT": "-1"}, ["EXO_CLUSTER_PORT = '-1'", ">= 0"]),
    ],
)
def test_a_bad_variable_is_one_line_that_names_it(tmp_path: Path, variables: dict[str, str], parts: list[str]) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, variables)
    line = str(caught.value)
    assert "\n" not in line
    assert [part for part in parts if part not in line] == []
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("prot = 1", ["config.toml", "`prot`", "did you mean port?"]),
        ("zzzzzz = 1", ["config.toml", "`zzzzzz`", "docs/settings.md"]),
        ("port = 'x'", ["config.toml: port = 'x'", "`int`"]),
        ("port = -1", ["config.toml: port = -1", ">= 0"]),
        ("port = ", ["config.toml: ", "Invalid value", "correct the file"]),
        ("data_dir = '/x'", ["`data_dir`", "--data-dir"]),
        ("cluster_secret = 'x'", ["`cluster_secret`", "use EXO_CLUSTER_SECRET"]),
    ],
)
def test_a_bad_file_is_one_line_that_names_it(tmp_path: Path, content: str, parts: list[str]) -> None:
    write_config(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, data_dir=tmp_path)
    line = str(caught.value)
    assert str(tmp_path) in line
    assert "\n" not in line
    assert [part for part in parts if part not in line] == []


def test_a_variable_nobody_reads_is_a_warning_with_the_likely_name(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"EXO_PROT": "80", "EXO_URL": "http://a", "EXO_SERVICE_HOST": "10.0.0.1", "OTHER": "1"})
    assert [line.split()[2] for line in loaded.warnings] == ["EXO_PROT", "EXO_SERVICE_HOST"]
    assert "did you mean EXO_PORT?" in loaded.warnings[0]


def test_upstream_variables_are_read_as_ours_and_ours_win(tmp_path: Path) -> None:
    variables = {"EXO_ZENOH_NAMESPACE": "lab", "EXO_NO_BATCH": "1", "OVERRIDE_MEMORY_MB": "4096"}
    settings = load(tmp_path, variables).settings
    assert (settings.namespace, settings.max_concurrent_requests, settings.memory_available_mb) == ("lab", 1, 4096)
    assert load(tmp_path, {**variables, "EXO_NAMESPACE": "mine"}).settings.namespace == "mine"
    assert load(tmp_path, {"EXO_NO_BATCH": "false"}).settings.max_concurrent_requests == 16


def test_a_bad_value_names_the_variable_that_was_set_not_ours(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="OVERRIDE_MEMORY_MB = 'much'"):
        load(tmp_path, {"OVERRIDE_MEMORY_MB": "much"})


def test_exo_home_is_below_home_unless_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(tmp_path, {"EXO_HOME": "box"}).paths.data == tmp_path / "box"
    assert load(tmp_path, {"EXO_HOME": str(tmp_path / "abs")}).paths.data == tmp_path / "abs"


def test_a_refused_switch_that_is_off_passes(tmp_path: Path) -> None:
    assert load(tmp_path, {"EXO_ENABLE_IMAGE_MODELS": "false"}).settings == Settings()


def test_upstream_flags_are_translated() -> None:
    assert translate_flags(["--api-port", "80", "--no-batch", "-v"]) == [
        "--port",
        "80",
        "--max-concurrent-requests=1",
        "-v",
    ]
    assert translate_flags(["--api-port=80"]) == ["--port=80"]
    assert translate_flags(["--libp2p-port", "4001", "--bootstrap-peers=a,b"]) == [
        "--cluster-port",
        "4001",
        "--join=a,b",
    ]


@pytest.mark.parametrize("flag", ["-m", "--force-master", "--discovery-port=1", "--zenoh-port", "--no-downloads"])
def test_a_refused_flag_is_one_line_that_names_it(flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        translate_flags(["-v", flag])
    assert str(caught.value).startswith(flag.partition("=")[0] + ": ")


def test_every_setting_says_what_it_is() -> None:
    assert [about.name for about in describe_settings().values() if len(about.description) < 10] == []
    flags = [about.flag for about in describe_settings().values() if about.flag]
    assert len(flags) == len(set(flags))
