"""`exo cluster`, `exo status` and `exo uninstall` on real nodes: closed while they run, copied, taken away."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.node import NodeProcess, running_node, wait_for

EXO = str(Path(sys.executable).with_name("exo"))
LOCAL = ("--local", "--namespace", "lab", "--cluster-port", "0")


def exo(*arguments: str, data: Path, piped: str = "") -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "EXO_DATA_DIR": str(data), "EXO_NAMESPACE": "lab"}
    return subprocess.run(
        [EXO, *arguments], input=piped, capture_output=True, text=True, timeout=90, check=False, env=environment
    )


def read(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_cluster_address(node: NodeProcess) -> str:
    return json.loads((node.data / "node.json").read_bytes())["cluster_addresses"][0]


def read_report(node: NodeProcess) -> dict[str, Any]:
    return json.loads(read(exo("cluster", "show", "--json", data=node.data)))["report"]


def sees(node: NodeProcess, *names: str) -> bool:
    return {member["name"] for member in read_report(node)["members"] if member["reached"]} == set(names)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """Two nodes that have found each other."""
    with running_node(tmp_path / "one", *LOCAL, "--name", "one") as one:
        join = ("--join", read_cluster_address(one))
        with running_node(tmp_path / "two", *LOCAL, "--name", "two", *join) as two:
            wait_for(lambda: sees(one, "one", "two") and sees(two, "one", "two"), seconds=30, what="each other")
            yield one, two


def test_a_running_cluster_is_closed_and_joined_again(pair: tuple[NodeProcess, NodeProcess]) -> None:
    one, two = pair
    secret = read(exo("cluster", "secret", data=one.data)).splitlines()[0].rpartition(" ")[2]
    wait_for(lambda: not sees(one, "one", "two"), seconds=30, what="the refusal", node=one)
    wait_for(lambda: "does not have the cluster secret" in exo("status", data=one.data).stderr, seconds=20, what="why")
    read(exo("cluster", "join", "-", data=two.data, piped=secret))
    wait_for(lambda: sees(one, "one", "two") and sees(two, "one", "two"), seconds=30, what="each other again", node=one)
    assert read_report(two)["closed"] is True
    assert "cluster lab (closed)" in exo("status", data=two.data).stderr
    for node in pair:
        assert secret not in node.log()
        assert secret not in (node.data / "cache" / "exo_log" / "exo.log").read_text()
        assert not any(secret in " ".join(process.cmdline()) for process in node.children())


def test_a_copied_data_directory_becomes_a_node_of_its_own(tmp_path: Path) -> None:
    with running_node(tmp_path / "one", *LOCAL) as one:
        first = json.loads((one.data / "node.json").read_bytes())["node_id"]
    shutil.copytree(one.data, tmp_path / "copy")
    # As on another machine.
    (tmp_path / "copy" / "machine").write_text("another\n")
    one.start()
    with running_node(tmp_path / "copy", *LOCAL, "--join", read_cluster_address(one)) as copy:
        try:
            assert f"belongs to node {first}" in copy.log()
            wait_for(lambda: len(copy.state()["nodes"]) == 2, seconds=30, what="two nodes", node=copy)
            assert first in copy.state()["nodes"]
        finally:
            one.stop()


def test_uninstalling_leaves_nothing_of_a_node_behind(tmp_path: Path) -> None:
    with running_node(tmp_path / "one", *LOCAL) as one:
        read(exo("cluster", "secret", data=one.data))
        refused = exo("uninstall", "--yes", data=one.data)
        assert refused.returncode == 1
        assert f"process {one.pid}" in refused.stderr
        removed = read(exo("uninstall", "--yes", "--stop", data=one.data)).splitlines()
        assert f"remove {one.data / 'nats'}" in removed
        # The test's own file is somebody else's to exo.
        assert [file.name for file in one.data.iterdir()] == ["stderr.txt"]
