"""State: everything the cluster agrees on, folded from the event log. Frozen; see `apply`."""

from typing import Literal

import msgspec

from exo.streams.ids import CommandId, InstanceId, KeyId, ModelId, NodeId, RunnerId, SessionId, TaskId
from exo.streams.instances import Instance, RemovedInstance, RunnerRecord
from exo.streams.keys import ApiKey
from exo.streams.links import Link, Thunderbolt
from exo.streams.merges import Merge
from exo.streams.models import ModelCard
from exo.streams.nodes import NodeRecord
from exo.streams.pages import Pages
from exo.streams.tasks import EndedTask, TaskRecord

KEPT_RECEIPTS = 4096
KEPT_ENDED_TASKS = 1024
KEPT_REMOVED_INSTANCES = 64
KEPT_SESSIONS = 16
KEPT_MERGES = 16


class Receipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a command was decided; asked again, the master repeats this answer."""

    outcome: Literal["accepted", "rejected"]
    sequence: int
    code: str = ""
    reason: str = ""
    subject_id: str = ""
    """The instance, task or model that the command was about."""


def _no_receipts() -> Pages[CommandId, Receipt]:
    return Pages(limit=KEPT_RECEIPTS)


def _no_ended_tasks() -> Pages[TaskId, EndedTask]:
    return Pages(limit=KEPT_ENDED_TASKS)


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What every node knows after `applied` events of `session`."""

    session: SessionId = SessionId("")
    lineage: tuple[SessionId, ...] = ()
    """The newest sessions that this one continues, oldest first."""
    epoch: int = 0
    master: NodeId = NodeId("")
    applied: int = 0
    """Sequence of the last event folded in; 0 before the first."""
    nodes: dict[NodeId, NodeRecord] = {}
    instances: dict[InstanceId, Instance] = {}
    runners: dict[RunnerId, RunnerRecord] = {}
    tasks: dict[TaskId, TaskRecord] = {}
    ended_tasks: Pages[TaskId, EndedTask] = msgspec.field(default_factory=_no_ended_tasks)
    cards: dict[ModelId, ModelCard] = {}
    api_keys: dict[KeyId, ApiKey] = {}
    links: dict[NodeId, tuple[Link, ...]] = {}
    """By the node that measured; kept when it or its peer goes offline, for `nodes` says so."""
    thunderbolt: dict[NodeId, Thunderbolt] = {}
    """Of the Macs among the nodes."""
    removed_instances: tuple[RemovedInstance, ...] = ()
    receipts: Pages[CommandId, Receipt] = msgspec.field(default_factory=_no_receipts)
    merges: tuple[Merge, ...] = ()
    """The newest clusters that joined this one, and what of them could not live on."""
    unknown_events: int = 0
    """Events of a type this version does not know."""
    ignored_events: int = 0
    """Facts of an older boot or about things that are gone."""
