"""The lock on a data directory, held by a real second process."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.ops.errors import NoNodeError
from exo.ops.lock import DirectoryInUseError, DirectoryLock, is_held, read_holder
from exo.ops.node_file import (
    RunningNode,
    read_node_file,
    remove_node_file,
    require_node,
    write_node_file,
)
from exo.ops.paths import Paths, find_paths
from exo.streams.ids import NodeId

HOLD = """
import sys
from pathlib import Path
from exo.ops.lock import DirectoryLock
with DirectoryLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = find_paths(tmp_path)
    paths.prepare()
    return paths


@pytest.fixture
def holder(paths: Paths) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", HOLD, str(paths.lock_file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_the_second_one_learns_who_holds_it(paths: Paths, holder: "subprocess.Popen[str]") -> None:
    with pytest.raises(DirectoryInUseError) as caught, DirectoryLock(paths.lock_file):
        pass
    assert caught.value.holder is not None
    assert caught.value.holder.pid == holder.pid
    assert f"process {holder.pid} since 20" in str(caught.value)
    assert "exo down" in str(caught.value)


def test_a_killed_holder_holds_nothing(paths: Paths, holder: "subprocess.Popen[str]") -> None:
    assert is_held(paths.lock_file)
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert not is_held(paths.lock_file)
    with DirectoryLock(paths.lock_file):
        signed = read_holder(paths.lock_file)
        assert signed is not None
        assert signed.pid == os.getpid()
    assert read_holder(paths.lock_file) is None


def test_nothing_is_held_where_nothing_is(paths: Paths) -> None:
    assert not is_held(paths.lock_file)


NODE = RunningNode(pid=1, node_id=NodeId("n1"), name="desk", version="1", api_url="http://127.0.0.1:1")


def test_a_node_file_counts_only_while_the_lock_is_held(paths: Paths) -> None:
    write_node_file(paths.node_file, NODE)
    assert read_node_file(paths) is None
    with pytest.raises(NoNodeError, match=r"no node runs on .*exo up"):
        require_node(paths)
    with DirectoryLock(paths.lock_file):
        assert require_node(paths) == NODE
        assert paths.node_file.stat().st_mode & 0o777 == 0o600
        remove_node_file(paths.node_file)
        with pytest.raises(NoNodeError, match="still starting"):
            require_node(paths)
    assert NoNodeError("x").exit_code == 3
