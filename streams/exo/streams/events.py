"""What happened: past tense, one JSON object each on `exo.events.>`.

Decisions are written by the master only, facts by the node they are about. The log never carries
user text, tokens, gauges or secrets.
"""

from typing import get_args

import msgspec

from exo.streams import subjects
from exo.streams.chunks import FinishReason, Usage
from exo.streams.downloads import ModelReport
from exo.streams.ids import BootId, CommandId, InstanceId, KeyId, ModelId, NodeId, RunnerId, SessionId, TaskId
from exo.streams.instances import Instance, RunnerStatus
from exo.streams.keys import ApiKey
from exo.streams.links import Link, Thunderbolt
from exo.streams.merges import Dropped
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeFacts, RunnerReport
from exo.streams.tasks import TaskRecord


class EpochStarted(msgspec.Struct, frozen=True, kw_only=True, tag="epoch_started"):
    """A master took over. `base` is the last sequence before this session's log."""

    session: SessionId
    epoch: int
    base: int
    state_hash: str
    master: NodeId


class InstancePlaced(msgspec.Struct, frozen=True, kw_only=True, tag="instance_placed"):
    """A model gets runners on nodes."""

    instance: Instance


class InstanceRemoved(msgspec.Struct, frozen=True, kw_only=True, tag="instance_removed"):
    """An instance is gone; its unfinished tasks fail with the same code."""

    instance: InstanceId
    code: str
    reason: str
    evidence: tuple[str, ...] = ()


class TaskAssigned(msgspec.Struct, frozen=True, kw_only=True, tag="task_assigned"):
    """A request goes to an instance."""

    task: TaskRecord


class TaskCancelled(msgspec.Struct, frozen=True, kw_only=True, tag="task_cancelled"):
    """A request is dropped, or will be as soon as it turns up."""

    task: TaskId
    reason: str


class TasksFailed(msgspec.Struct, frozen=True, kw_only=True, tag="tasks_failed"):
    """Requests whose node or runner is gone."""

    tasks: tuple[TaskId, ...]
    code: str
    message: str


class CommandRejected(msgspec.Struct, frozen=True, kw_only=True, tag="command_rejected"):
    """A command that changes nothing, and why."""

    command: CommandId
    code: str
    reason: str


class CommandAnswered(msgspec.Struct, frozen=True, kw_only=True, tag="command_answered"):
    """A command that changes nothing because what it asks for is so already."""

    command: CommandId
    instance: InstanceId


class ModelCardAdded(msgspec.Struct, frozen=True, kw_only=True, tag="model_card_added"):
    """A custom model is known from now on."""

    card: ModelCard


class ModelCardDeleted(msgspec.Struct, frozen=True, kw_only=True, tag="model_card_deleted"):
    """A custom model is forgotten."""

    model: ModelId


class ApiKeyAdded(msgspec.Struct, frozen=True, kw_only=True, tag="api_key_added"):
    """A key is admitted from now on."""

    key: ApiKey


class ApiKeyRevoked(msgspec.Struct, frozen=True, kw_only=True, tag="api_key_revoked"):
    """A key is refused from now on."""

    key: KeyId


class NodeDraining(msgspec.Struct, frozen=True, kw_only=True, tag="node_draining"):
    """A node gets nothing new until this is taken back or it starts anew."""

    node: NodeId
    draining: bool


class NodeTimedOut(msgspec.Struct, frozen=True, kw_only=True, tag="node_timed_out"):
    """A node is gone, or was silent for too long."""

    node: NodeId


class NodeJoined(msgspec.Struct, frozen=True, kw_only=True, tag="node_joined"):
    """A node is up, with a new boot id."""

    node: NodeId
    facts: NodeFacts


class NodeReported(msgspec.Struct, frozen=True, kw_only=True, tag="node_reported"):
    """All that a node runs and holds: written at each new session or epoch.

    `runners` may hold some of instances that State does not know: they live until it is clear whether
    their instance comes back. `tasks` are the requests that its runners work on.
    """

    node: NodeId
    runners: tuple[RunnerReport, ...]
    models: tuple[ModelReport, ...]
    tasks: tuple[TaskId, ...]


class NodeLeft(msgspec.Struct, frozen=True, kw_only=True, tag="node_left"):
    """A node went down in good order."""

    node: NodeId


class SessionMerged(msgspec.Struct, frozen=True, kw_only=True, tag="session_merged"):
    """A node found what the cluster it came from had and this one lacks; `session` is the one it left."""

    node: NodeId
    session: SessionId
    adopted: tuple[str, ...] = ()
    dropped: tuple[Dropped, ...] = ()


class ModelsReported(msgspec.Struct, frozen=True, kw_only=True, tag="models_reported"):
    """All models that a node holds now."""

    node: NodeId
    models: tuple[ModelReport, ...]


class RunnerStatusChanged(msgspec.Struct, frozen=True, kw_only=True, tag="runner_status_changed"):
    """A runner moved on in its life."""

    node: NodeId
    runner: RunnerId
    status: RunnerStatus


class TaskFinished(msgspec.Struct, frozen=True, kw_only=True, tag="task_finished"):
    """A request was answered in full; `last_index` is that of its `Done` chunk."""

    node: NodeId
    task: TaskId
    last_index: int
    reason: FinishReason
    usage: Usage


class TaskFailed(msgspec.Struct, frozen=True, kw_only=True, tag="task_failed"):
    """A request was refused by the runner or broke off."""

    node: NodeId
    task: TaskId
    last_index: int
    code: str
    message: str


class LinksMeasured(msgspec.Struct, frozen=True, kw_only=True, tag="links_measured"):
    """What connects a node to the others has changed: all its links, as they are now."""

    node: NodeId
    links: tuple[Link, ...]


class ThunderboltObserved(msgspec.Struct, frozen=True, kw_only=True, tag="thunderbolt_observed"):
    """A cable, the bridge or RDMA of a Mac has changed: all its ports, as they are now."""

    node: NodeId
    thunderbolt: Thunderbolt


Decision = (
    InstancePlaced
    | InstanceRemoved
    | TaskAssigned
    | TaskCancelled
    | TasksFailed
    | CommandRejected
    | CommandAnswered
    | ModelCardAdded
    | ModelCardDeleted
    | ApiKeyAdded
    | ApiKeyRevoked
    | NodeDraining
    | NodeTimedOut
)
Fact = (
    NodeJoined
    | NodeReported
    | NodeLeft
    | SessionMerged
    | ModelsReported
    | RunnerStatusChanged
    | TaskFinished
    | TaskFailed
    | LinksMeasured
    | ThunderboltObserved
)
Event = EpochStarted | Decision | Fact
FACTS: tuple[type[Fact], ...] = get_args(Fact)


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a type that this version does not know: skipped and counted, never written."""

    type: str


class Envelope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event and its circumstances, as it stands in the log.

    The message's headers hold only what the server itself reads (ADR 0010).
    """

    id: str
    """Also the message id, so that writing twice stores once."""
    at: int
    """Unix time in ms by the writer's clock."""
    actor: NodeId
    boot: BootId
    epoch: int = 0
    """The master's epoch for decisions, 0 for facts."""
    cause: CommandId | None = None
    """The command that this event answers."""
    event: Event


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """An envelope at its place in the log; `event` in it may be unknown to this version."""

    sequence: int
    envelope: Envelope | None
    unknown: UnknownEvent | None = None


_MASTER_SUBJECTS: dict[type[Event], tuple[str, str]] = {
    InstancePlaced: ("instance", "placed"),
    InstanceRemoved: ("instance", "removed"),
    TaskAssigned: ("task", "assigned"),
    TaskCancelled: ("task", "cancelled"),
    TasksFailed: ("task", "failed"),
    CommandRejected: ("command", "rejected"),
    CommandAnswered: ("command", "answered"),
    ModelCardAdded: ("model", "added"),
    ModelCardDeleted: ("model", "deleted"),
    ApiKeyAdded: ("key", "added"),
    ApiKeyRevoked: ("key", "revoked"),
    NodeDraining: ("node", "draining"),
    NodeTimedOut: ("node", "timed-out"),
}
_NODE_VERBS: dict[type[Fact], str] = {
    NodeJoined: "joined",
    NodeReported: "reported",
    NodeLeft: "left",
    SessionMerged: "session-merged",
    ModelsReported: "models-reported",
    RunnerStatusChanged: "runner-status-changed",
    TaskFinished: "task-finished",
    TaskFailed: "task-failed",
    LinksMeasured: "links-measured",
    ThunderboltObserved: "thunderbolt-observed",
}


def _identifier(event: Event) -> str:
    match event:
        case InstancePlaced(instance=Instance(id=identifier)) | InstanceRemoved(instance=identifier):
            return identifier
        case TaskAssigned(task=TaskRecord(id=identifier)) | TaskCancelled(task=identifier):
            return identifier
        case NodeTimedOut(node=identifier) | NodeDraining(node=identifier):
            return identifier
        case ApiKeyAdded(key=ApiKey(id=identifier)) | ApiKeyRevoked(key=identifier):
            return identifier
        case CommandRejected(command=identifier) | CommandAnswered(command=identifier):
            return identifier
        case _:
            return "all"


def subject_of_event(event: Event) -> str:
    """Give the subject that this event is written on."""
    if isinstance(event, EpochStarted):
        return subjects.EPOCH
    if isinstance(event, FACTS):
        return subjects.node_event(event.node, _NODE_VERBS[type(event)])
    aggregate, verb = _MASTER_SUBJECTS[type(event)]
    return subjects.master_event(aggregate, _identifier(event), verb)
