"""Identifiers: opaque `[a-z0-9-]` strings, safe as one NATS subject token.

The only module of `exo.streams` that draws random numbers.
"""

import re
import uuid
from typing import NewType

NodeId = NewType("NodeId", str)
BootId = NewType("BootId", str)
SessionId = NewType("SessionId", str)
TaskId = NewType("TaskId", str)
CommandId = NewType("CommandId", str)
InstanceId = NewType("InstanceId", str)
RunnerId = NewType("RunnerId", str)
KeyId = NewType("KeyId", str)
ModelId = NewType("ModelId", str)
"""A model's name as people type it (`org/name`): may hold `/`, so never part of a subject."""

SUBJECT_TOKEN = re.compile(r"^[a-z0-9-]{1,64}$")
_PUBLIC_PREFIX = re.compile(r"^(?:chatcmpl-|cmpl-|msg_|resp_)?(?P<task>[a-z0-9-]{1,64})$")


def new_node_id() -> NodeId:
    """Draw the id of a machine; stored once and kept over restarts."""
    return NodeId(uuid.uuid4().hex)


def new_boot_id() -> BootId:
    """Draw the id of one process life of a node."""
    return BootId(uuid.uuid4().hex)


def new_session_id() -> SessionId:
    """Draw the id of one incarnation of the hub's event log."""
    return SessionId(uuid.uuid4().hex[:12])


def new_task_id() -> TaskId:
    """Draw the id of one request to a model."""
    return TaskId(uuid.uuid4().hex)


def new_command_id() -> CommandId:
    """Draw the id of one command; it is also the message id on the bus."""
    return CommandId(str(uuid.uuid4()))


def new_instance_id() -> InstanceId:
    """Draw the id of one placed copy of a model."""
    return InstanceId(str(uuid.uuid4()))


def new_key_id() -> KeyId:
    """Draw the id of one API key, by which people revoke it; it opens nothing."""
    return KeyId(uuid.uuid4().hex[:12])


def task_of_public_id(public_id: str) -> TaskId | None:
    """Give the task behind a dialect's id (`chatcmpl-…`, `msg_…`, `resp_…`) or a bare task id."""
    match = _PUBLIC_PREFIX.match(public_id)
    return TaskId(match["task"]) if match else None
