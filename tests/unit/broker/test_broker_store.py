"""The store's lock and the clean-up of leftovers."""

import os
from pathlib import Path

import pytest

from exo.broker.errors import StoreLockedError
from exo.broker.store import StoreLock, measure_room, read_command_line, stop_leftovers


def test_the_second_holder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    with StoreLock(tmp_path), pytest.raises(StoreLockedError, match=f"process {os.getpid()}"):
        StoreLock(tmp_path).acquire()


def test_a_released_lock_can_be_taken(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path)
    lock.acquire()
    lock.release()
    lock.release()
    with StoreLock(tmp_path):
        pass


async def test_a_pid_that_belongs_to_something_else_is_left_alone(tmp_path: Path) -> None:
    """The ports file of a server that is long gone may name any process by now: here, ours."""
    ports = tmp_path / f"nats-server_{os.getpid()}.ports"
    ports.write_text("{}")
    assert await stop_leftovers(tmp_path, config_file=tmp_path / "nats-server.conf") == []
    assert not ports.exists()


def test_command_lines_are_read() -> None:
    assert "python" in read_command_line(os.getpid())
    assert read_command_line(2**22 + 1) == ""


def test_room_counts_what_the_store_holds(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "block").write_bytes(bytes(1000))
    assert measure_room(tmp_path) > 1000
