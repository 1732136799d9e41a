"""What clients ask of the master: imperative, one JSON object each on `exo.commands.>`.

A command is decided exactly once: into one event that carries `command_id` as its cause, or into
one `CommandRejected`.
"""

import msgspec

from exo.streams import subjects
from exo.streams.ids import BootId, CommandId, InstanceId, KeyId, ModelId, NodeId, TaskId
from exo.streams.instances import Instance, Sharding, Transport
from exo.streams.keys import ApiKey
from exo.streams.models import ModelCard
from exo.streams.tasks import OnDisconnect

DEFAULT_TTL = 30_000
"""Milliseconds."""


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    command_id: CommandId
    issued_at: int
    """Unix time in ms by the sender's clock: for people to read, never compared with another clock."""
    ttl: int = DEFAULT_TTL
    """Milliseconds in the queue after which the master answers `command_expired`."""


class PlaceInstance(_Command, frozen=True, kw_only=True, tag_field="type", tag="place_instance"):
    """Choose nodes for a model and place it there; the sender draws the instance's id."""

    instance: InstanceId
    model: ModelId
    sharding: Sharding = "Pipeline"
    transport: Transport = "MlxRing"
    min_nodes: int = 1
    context_length: int = 0
    """Tokens to count KV cache for; 0 leaves it to the master."""
    only_if_absent: bool = False
    """Answer with the instance that runs already instead of placing a second one."""


class CreateInstance(_Command, frozen=True, kw_only=True, tag_field="type", tag="create_instance"):
    """Place exactly this instance, as a preview gave it."""

    instance: Instance


class DeleteInstance(_Command, frozen=True, kw_only=True, tag_field="type", tag="delete_instance"):
    """Stop an instance; its requests end with a reason."""

    instance: InstanceId
    reason: str = "removed by a user"


class SubmitTask(_Command, frozen=True, kw_only=True, tag_field="type", tag="submit_task"):
    """Assign a request, whose body is stored already, to a ready instance of its model."""

    task: TaskId
    model: ModelId
    size: int
    """Bytes of the stored body."""
    gateway: NodeId
    gateway_boot: BootId
    priority: int = 0
    key: str = ""
    time_limit: int = 0
    """Milliseconds that are left for the answer, 0 for no limit."""
    on_disconnect: OnDisconnect = "cancel"
    resume_on: InstanceId = InstanceId("")
    """The instance that had the request when the log that said so was lost; sent again with the same task."""
    admitted: bool = False
    """Whether more than nothing of its answer was seen: then only that instance can go on with it."""
    attempt: int = 1
    """That of the assignment that was lost; begun anew elsewhere, the answer counts one more."""


class CancelTask(_Command, frozen=True, kw_only=True, tag_field="type", tag="cancel_task"):
    """Drop a request; one that is not known yet leaves a tombstone."""

    task: TaskId
    reason: str = "the request was cancelled"


class AddModelCard(_Command, frozen=True, kw_only=True, tag_field="type", tag="add_model_card"):
    """Make a custom model known to the whole cluster."""

    card: ModelCard


class DeleteModelCard(_Command, frozen=True, kw_only=True, tag_field="type", tag="delete_model_card"):
    """Forget a custom model on every node."""

    model: ModelId


class AddApiKey(_Command, frozen=True, kw_only=True, tag_field="type", tag="add_api_key"):
    """Admit whoever holds a key; only its hash leaves the gateway that made it."""

    key: ApiKey


class RevokeApiKey(_Command, frozen=True, kw_only=True, tag_field="type", tag="revoke_api_key"):
    """Refuse a key from now on."""

    key: KeyId


class DrainNode(_Command, frozen=True, kw_only=True, tag_field="type", tag="drain_node"):
    """Give a node no new requests and no new instances, or with `on` false give it some again."""

    node: NodeId
    on: bool = True


Command = (
    PlaceInstance
    | CreateInstance
    | DeleteInstance
    | SubmitTask
    | CancelTask
    | AddModelCard
    | DeleteModelCard
    | AddApiKey
    | RevokeApiKey
    | DrainNode
)

_SUBJECT_PARTS: dict[type[Command], tuple[str, str]] = {
    PlaceInstance: ("instance", "place"),
    CreateInstance: ("instance", "create"),
    DeleteInstance: ("instance", "delete"),
    SubmitTask: ("task", "submit"),
    CancelTask: ("task", "cancel"),
    AddModelCard: ("model", "add"),
    DeleteModelCard: ("model", "delete"),
    AddApiKey: ("key", "add"),
    RevokeApiKey: ("key", "revoke"),
    DrainNode: ("node", "drain"),
}


def subject_of_command(command: Command) -> str:
    """Give the subject that this command is published on."""
    aggregate, verb = _SUBJECT_PARTS[type(command)]
    return subjects.command(aggregate, verb)
