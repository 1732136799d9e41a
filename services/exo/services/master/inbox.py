"""Reading the command queue: bytes become a command, a refusal, or poison. Pure."""

import msgspec

from exo.services.master.decide import reject
from exo.streams.codec import CodecError, decode_as, decode_command
from exo.streams.codes import Code
from exo.streams.commands import Command
from exo.streams.events import CommandRejected
from exo.streams.ids import SUBJECT_TOKEN, CommandId


class Garbage(msgspec.Struct, frozen=True):
    """Nobody can be answered: there is no readable command id."""

    reason: str


class _Heading(msgspec.Struct, frozen=True):
    command_id: CommandId
    type: str = ""


KNOWN_TYPES = frozenset(kind.__struct_config__.tag for kind in Command.__args__)


def read_command(data: bytes) -> Command | CommandRejected | Garbage:
    """Decode one message; whoever can be answered is answered."""
    try:
        command = decode_command(data)
    except CodecError as error:
        return _refuse(data, error)
    if not SUBJECT_TOKEN.match(command.command_id):
        return Garbage(f"not a command id: {command.command_id!r}")
    return command


def _refuse(data: bytes, error: CodecError) -> CommandRejected | Garbage:
    try:
        heading = decode_as(_Heading, data)
    except CodecError:
        return Garbage(str(error))
    if not SUBJECT_TOKEN.match(heading.command_id):
        return Garbage(f"not a command id: {heading.command_id!r}")
    if heading.type not in KNOWN_TYPES:
        reason = f"this version of exo does not know commands of type {heading.type!r}"
        return reject(heading.command_id, Code.COMMAND_UNKNOWN, reason)
    return reject(heading.command_id, Code.INVALID_REQUEST, f"the command is malformed: {error}")
