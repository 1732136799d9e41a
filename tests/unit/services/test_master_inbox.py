"""What comes over the wire as a command, readable or not."""

import msgspec
import pytest

from exo.services.master.inbox import KNOWN_TYPES, Garbage, read_command
from exo.streams import commands as c
from exo.streams.codec import encode
from exo.streams.codes import Code
from exo.streams.events import CommandRejected
from exo.streams.ids import CommandId, TaskId
from support.services import NOW

COMMAND = c.CancelTask(command_id=CommandId("c-1"), issued_at=NOW, task=TaskId("t"))


def change(**fields: object) -> bytes:
    return encode({**msgspec.to_builtins(COMMAND), **fields})


def test_a_command_is_read() -> None:
    assert read_command(encode(COMMAND)) == COMMAND


def test_a_command_of_a_newer_version_is_answered() -> None:
    read = read_command(change(type="dance"))
    assert isinstance(read, CommandRejected)
    assert (read.command, read.code) == ("c-1", Code.COMMAND_UNKNOWN)
    assert "'dance'" in read.reason


def test_a_malformed_command_is_answered_with_what_is_wrong() -> None:
    read = read_command(change(task=7))
    assert isinstance(read, CommandRejected)
    assert (read.command, read.code) == ("c-1", Code.INVALID_REQUEST)
    assert "$.task" in read.reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no json",
        b"[]",
        b"\xff",
        b"{}",
        change(command_id="a.b"),
        change(command_id=7),
        change(command_id="", x=1),
    ],
)
def test_what_nobody_can_be_told_of_is_garbage(data: bytes) -> None:
    assert isinstance(read_command(data), Garbage)


def test_every_command_is_known() -> None:
    assert "submit_task" in KNOWN_TYPES
    assert len(KNOWN_TYPES) == 10
