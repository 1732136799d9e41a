"""State in a file of the node: whole or not at all, and never in the way."""

import asyncio
from pathlib import Path

import pytest

from exo.services.clock import FakeClock
from exo.services.snapshots.file import EVERY, StandbyFile
from exo.streams.ids import SessionId
from exo.streams.state import State
from support.services import eventually

KNOWN = State(session=SessionId("s"), applied=3)


class Source:
    def __init__(self) -> None:
        self.state = State()


async def test_what_was_written_is_read(tmp_path: Path) -> None:
    file = StandbyFile(tmp_path / "data", cluster="home", clock=FakeClock())
    assert file.read() is None
    await file.write(KNOWN)
    assert StandbyFile(tmp_path / "data", cluster="home", clock=FakeClock()).read() == KNOWN
    assert [path.name for path in file.path.parent.iterdir()] == [file.path.name]


async def test_what_is_known_of_another_cluster_is_not_taken_over_and_stays(tmp_path: Path) -> None:
    files = {name: StandbyFile(tmp_path, cluster=name, clock=FakeClock()) for name in ("home", "work/..", "")}
    for number, file in enumerate(files.values()):
        assert file.read() is None
        await file.write(State(session=SessionId("s"), applied=number))
    read = [StandbyFile(tmp_path, cluster=name, clock=FakeClock()).read() for name in files]
    assert [state and state.applied for state in read] == [0, 1, 2]


@pytest.mark.parametrize("damaged", [b"", b"nonsense", b"cut"])
async def test_a_damaged_file_is_not_used(tmp_path: Path, damaged: bytes) -> None:
    file = StandbyFile(tmp_path, cluster="home", clock=FakeClock())
    await file.write(KNOWN)
    whole = file.path.read_bytes()
    file.path.write_bytes(whole[:-7] if damaged == b"cut" else damaged)
    assert file.read() is None


async def test_a_disk_that_refuses_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    file = StandbyFile(tmp_path / "file", cluster="home", clock=FakeClock())
    await file.write(KNOWN)
    assert file.read() is None


async def test_state_is_written_when_it_has_changed_and_not_before_there_is_a_session(tmp_path: Path) -> None:
    source, clock = Source(), FakeClock()
    file = StandbyFile(tmp_path, cluster="home", clock=clock)
    task = asyncio.create_task(file.run(source))
    await clock.advance(EVERY)
    assert not file.path.exists()
    source.state = KNOWN
    await clock.advance(EVERY)

    async def is_written() -> bool:
        return file.read() == KNOWN

    await eventually(is_written, what="the file")
    task.cancel()
