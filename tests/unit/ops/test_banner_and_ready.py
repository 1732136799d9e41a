"""What a node says at start and when it serves."""

import json
import shlex
from pathlib import Path

import pytest

from exo.ops.banner import SEPARATOR, api_url, exo_version, make_banner, network_api_url
from exo.ops.join_line import make_join_line
from exo.ops.paths import find_paths
from exo.ops.ready import describe_cluster, make_curl_line, make_ready_lines
from exo.ops.settings import Settings
from exo.streams.ids import NodeId


def banner(settings: Settings, *, closed: bool = False) -> list[str]:
    return make_banner(settings, find_paths(Path("/box")), node_id=NodeId("n1"), pid=42, closed=closed)


def test_the_banner_says_who_and_where() -> None:
    lines = banner(Settings(name="desk", namespace="lab"))
    assert lines[:2] == [SEPARATOR, "Starting EXO"]
    assert lines[-1] == SEPARATOR
    text = "\n".join(lines)
    for part in (exo_version(), "pid 42", "n1", "Discovery namespace: lab", "http://127.0.0.1:52415", "/box"):
        assert part in text
    assert "without keys" not in text


def test_the_banner_is_honest_about_an_open_api() -> None:
    assert any("without keys" in line for line in banner(Settings(host="0.0.0.0", no_auth=True)))
    assert not any("without keys" in line for line in banner(Settings(host="0.0.0.0")))
    assert any("--no-api" in line for line in banner(Settings(host="0.0.0.0", api=False)))
    assert any("any free port" in line for line in banner(Settings(port=0)))


def test_the_banner_is_honest_about_an_open_cluster() -> None:
    text = "\n".join(banner(Settings()))
    assert "Cluster port: 52414 if it is free" in text
    assert "The cluster is open: whoever reaches this machine may join. `exo cluster secret` closes it" in text
    assert any("The cluster is closed" in line for line in banner(Settings(), closed=True))
    assert any("--no-discovery" in line for line in banner(Settings(discovery=False)))


def test_a_local_node_says_that_nobody_can_join() -> None:
    text = "\n".join(banner(Settings(local=True)))
    assert "no other machine can join" in text
    assert "cluster is open" not in text


def test_the_join_line_names_what_the_other_machine_cannot_know() -> None:
    assert make_join_line(exo_version(), ["127.0.0.1:1", "10.0.0.7:52414"]) == "exo up --join 10.0.0.7:52414"
    assert make_join_line("my lab", ["10.0.0.7:1", "10.0.1.7:1"]) == "exo up --namespace 'my lab' --join 10.0.0.7:1"
    assert make_join_line(exo_version(), []) == "exo up"
    assert make_join_line(exo_version(), [], closed=True) == "exo cluster join SECRET && exo up"


def test_an_address_is_one_that_can_be_opened() -> None:
    assert api_url("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert api_url("::", 80) == "http://[::1]:80"
    assert api_url("fe80::1", 80) == "http://[fe80::1]:80"


def test_an_api_that_is_open_to_the_network_says_where_others_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exo.ops.banner.list_interface_addresses", lambda: ["127.0.0.1", "fd00::7", "10.0.0.7"])
    assert network_api_url("0.0.0.0", 80) == "http://10.0.0.7:80"
    assert network_api_url("127.0.0.1", 80) == network_api_url("10.0.0.8", 80) == ""
    assert any("http://10.0.0.7:52415" in line for line in banner(Settings(host="0.0.0.0")))
    assert not any("10.0.0.7" in line for line in banner(Settings()))
    ready = make_ready_lines("http://127.0.0.1:1", [], network_url="http://10.0.0.7:1")
    assert ready[0] == "exo is ready at http://127.0.0.1:1, for other machines at http://10.0.0.7:1"


def test_an_api_that_nobody_else_can_reach_names_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exo.ops.banner.list_interface_addresses", lambda: ["127.0.0.1"])
    assert network_api_url("0.0.0.0", 80) == ""


def test_ready_says_which_cluster_was_joined() -> None:
    assert describe_cluster("lab", others=0, hub="desk") == "Alone in cluster lab"
    assert describe_cluster("lab", others=2, hub="desk") == "Joined cluster lab: 3 nodes, hub desk"
    assert make_ready_lines("http://a:1", [], cluster="Alone in cluster lab")[1] == "Alone in cluster lab"


def test_the_curl_line_is_one_shell_word_of_json() -> None:
    words = shlex.split(make_curl_line("http://a:1", "it's/odd"))
    assert words[:2] == ["curl", "http://a:1/v1/chat/completions"]
    body = json.loads(words[-1])
    assert body["model"] == "it's/odd"
    assert body["messages"][0]["role"] == "user"


def test_ready_names_the_models_or_how_to_get_one() -> None:
    assert "Model: a" in make_ready_lines("http://a:1", ["a", "b"])
    assert "exo models add starter" in make_ready_lines("http://a:1", [])[1]
    assert "keeps starter from it" in make_ready_lines("http://a:1", [], asked=["starter"])[1]
    assert "on the way back: a, b." in make_ready_lines("http://a:1", [], placed=["a", "b", "a"])[1]
    assert "On another machine: exo up --join a:1" in make_ready_lines("http://a:1", ["a"], join="exo up --join a:1")
    assert make_ready_lines("", []) == ["exo is ready, without an API on this node (--no-api)"]
