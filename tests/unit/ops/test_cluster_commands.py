"""`exo cluster`: the secret goes into its file, a running node is told, and neither sees it on the wire."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exo.ops import cli
from exo.ops.client import NodeClient
from exo.ops.lock import DirectoryLock
from exo.ops.node_file import RunningNode, write_node_file
from exo.ops.paths import Paths, find_paths
from exo.ops.secret import new_secret
from exo.streams.ids import NodeId
from support.scripted_api import ScriptedApi

REPORT = {
    "cluster": "lab",
    "closed": True,
    "role": "hub",
    "hub": "n1",
    "why": "nobody else is there",
    "node": "n1",
    "methods": [{"method": "zeroconf", "state": "off"}],
    "members": [
        {"node": "n2", "name": "desk", "version": "1", "role": "following", "address": "10.0.0.8:52414"},
        {"node": "n1", "name": "box", "version": "1", "role": "hub"},
        {"node": "n3", "name": "attic", "version": "1", "role": "following", "reached": False},
    ],
    "something_newer": 1,
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = find_paths(tmp_path / "box")
    paths.prepare()
    return paths


@pytest.fixture
def api(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedApi]:
    """A node that runs on the data directory, as far as commands can see."""
    rekeyed = {"closed": True, "origin": str(paths.secret_file)}
    api = ScriptedApi({"POST /v1/cluster/rekey": rekeyed, "GET /v1/cluster": {"report": REPORT, "merges": []}})

    def connect(_url: str) -> NodeClient:
        return api.client()

    monkeypatch.setattr("exo.ops.client.NodeClient", connect)
    node = RunningNode(
        pid=os.getpid(),
        node_id=NodeId("n1"),
        name="box",
        version="1",
        api_url="http://node:1",
        cluster="lab",
        cluster_addresses=("127.0.0.1:52414", "10.0.0.7:52414"),
    )
    with DirectoryLock(paths.lock_file):
        write_node_file(paths.node_file, node)
        yield api


def run(paths: Paths, *arguments: str) -> int:
    return cli.run(["cluster", *arguments, "--data-dir", str(paths.data)])


def read_secret(paths: Paths) -> str:
    return paths.secret_file.read_text().strip()


def test_closing_writes_the_file_tells_the_node_and_prints_the_join_lines(
    paths: Paths, api: ScriptedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(paths, "secret") == 0
    secret = read_secret(paths)
    assert paths.secret_file.stat().st_mode & 0o777 == 0o600
    assert capsys.readouterr().out.splitlines() == [
        f"exo cluster join {secret}",
        "exo up --namespace lab --join 10.0.0.7:52414",
    ]
    assert [name for name, _ in api.asked] == ["POST /v1/cluster/rekey"]
    assert secret not in repr(api.asked)


def test_a_closed_cluster_keeps_its_secret_unless_told(
    paths: Paths, api: ScriptedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(paths, "secret") == 0
    first, asked = read_secret(paths), len(api.asked)
    assert run(paths, "secret") == 0
    assert read_secret(paths) == first
    assert "POST /v1/cluster/rekey" not in [name for name, _ in api.asked[asked:]]
    capsys.readouterr()
    assert run(paths, "secret", "--new") == 0
    assert read_secret(paths) != first
    assert read_secret(paths) in capsys.readouterr().out


@pytest.mark.parametrize("piped", [False, True])
def test_joining_takes_the_secret_as_a_word_or_from_stdin(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, piped: bool
) -> None:
    secret = new_secret()
    monkeypatch.setattr("sys.stdin", io.StringIO(secret.upper() + "\n"))
    assert run(paths, "join", "-" if piped else secret) == 0
    assert read_secret(paths) == secret
    shown = capsys.readouterr()
    assert "exo up" in shown.err
    assert secret not in shown.out + shown.err


def test_a_running_node_is_told_of_joining_and_leaving(paths: Paths, api: ScriptedApi) -> None:
    assert run(paths, "join", new_secret()) == 0
    api.routes["POST /v1/cluster/rekey"] = {"closed": False, "origin": ""}
    assert run(paths, "leave") == 0
    assert not paths.secret_file.exists()
    assert [name for name, _ in api.asked] == ["POST /v1/cluster/rekey"] * 2
    assert run(paths, "leave") == 1


def test_a_node_that_reads_its_secret_elsewhere_is_told_about(
    paths: Paths, api: ScriptedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    api.routes["POST /v1/cluster/rekey"] = {"closed": True, "origin": "environment variable EXO_CLUSTER_SECRET"}
    assert run(paths, "join", new_secret()) == 1
    assert "goes on with the secret of environment variable EXO_CLUSTER_SECRET" in capsys.readouterr().err


def test_what_is_no_secret_is_refused(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(paths, "join", "hunter2") == 2
    shown = capsys.readouterr().err
    assert "not a cluster secret" in shown
    assert "hunter2" not in shown
    assert not paths.secret_file.exists()


@pytest.mark.parametrize("arguments", [["secret"], ["leave"], ["join", new_secret()]])
@pytest.mark.parametrize(
    ("variable", "value"), [("EXO_CLUSTER_SECRET", new_secret()), ("EXO_CLUSTER_SECRET_FILE", "/run/secrets/exo")]
)
def test_a_file_that_no_node_would_read_is_not_written(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, arguments: list[str], variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert run(paths, *arguments) == 2
    assert not paths.secret_file.exists()


def test_show_says_who_is_there(paths: Paths, api: ScriptedApi, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(paths, "show") == 0
    shown = capsys.readouterr()
    assert [line.split("\t") for line in shown.out.splitlines()[1:]] == [
        ["attic", "not reached", "following", "1", "-", "n3"],
        ["box", "this node", "hub", "1", "-", "n1"],
        ["desk", "reached", "following", "1", "10.0.0.8:52414", "n2"],
    ]
    assert "cluster lab (closed), hub box" in shown.err
    assert "this node is hub: nobody else is there" in shown.err
    assert run(paths, "show", "--json") == 0
    assert '"cluster": "lab"' in capsys.readouterr().out
    assert {name for name, _ in api.asked} == {"GET /v1/cluster"}


def test_status_shows_state_and_discovery_together(
    paths: Paths, api: ScriptedApi, capsys: pytest.CaptureFixture[str]
) -> None:
    facts: dict[str, Any] = {"name": "box", "version": "1"}
    node = {"id": "n1", "boot": "b", "facts": facts, "online": True, "since": 0}
    api.routes["GET /state"] = {"session": "s", "master": "n1", "nodes": {"n1": node}}
    assert cli.run(["status", "--data-dir", str(paths.data)]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[1].split("\t")[:3] == ["box", "online", "hub, master"]
    assert "cluster lab (closed), hub box" in shown.err
    assert "discovery: zeroconf off" in shown.err
    assert cli.run(["status", "--json", "--data-dir", str(paths.data)]) == 0
    assert '"cluster": "lab"' in capsys.readouterr().out
