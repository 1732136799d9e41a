"""What each role may say and hear on the bus: a pure table, written into the server's configuration.

Roles guard against mistakes - a node that speaks for another, a deposed master, a careless `nats pub` -
and not against members, who can derive every role from the cluster key (ADR 13).
"""

from typing import Final

import msgspec

from exo.streams import subjects
from exo.streams.ids import NodeId
from exo.streams.layout import BLOBS, COMMANDS, EVENTS, LEASE, NODES, REQUESTS, RESPONSES, SNAPSHOT

HUB: Final = "hub"
MASTER: Final = "master"
READER: Final = "reader"

REPLIES: Final = "_INBOX"
_ANSWERS: Final = f"{REPLIES}.>"
"""Whoever answers requests may publish to all inboxes. nats-server's own `allow_responses` would note each
delivery that carries a reply subject, those of JetStream among them: 0.8 kB for an event that three nodes follow."""

_READING: Final = (
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.>",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.NAMES",
    "$JS.API.DIRECT.GET.>",
)
_FOLLOWING: Final = (
    f"$JS.API.CONSUMER.CREATE.{EVENTS.name}.>",
    f"$JS.API.CONSUMER.DELETE.{EVENTS.name}.>",
    f"$JS.FC.{EVENTS.name}.>",
)
_LOOKING: Final = (
    "$JS.API.STREAM.MSG.GET.>",
    "$JS.API.CONSUMER.LIST.>",
    "$JS.API.CONSUMER.NAMES.>",
    "$JS.API.CONSUMER.INFO.>",
)
"""What the stock CLI asks. Never to create a consumer: that one could deliver onto any subject."""


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """Subjects that a role may publish and subscribe to."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def node_role(node: NodeId) -> str:
    """Give the role of a node's one bus."""
    return f"node-{node}"


def inbox_of(role: str) -> str:
    """Give the prefix of a role's reply subjects: its own, so that nobody hears another's replies."""
    return f"{REPLIES}.{role}"


def permit(role: str) -> Permissions | None:
    """Give what a role may do; None for everything."""
    if role == HUB:
        return None
    if role == MASTER:
        return _permit_master()
    if role == READER:
        return Permissions(
            publish=(*_READING, *_LOOKING, f"{inbox_of(role)}.>"), subscribe=("exo.>", f"{inbox_of(role)}.>")
        )
    return _permit_node(NodeId(role.removeprefix("node-")))


def _permit_master() -> Permissions:
    return Permissions(
        publish=(
            subjects.EPOCH,
            "exo.events.master.>",
            subjects.POISON,
            f"$KV.{LEASE.name}.>",
            f"$KV.{SNAPSHOT.name}.>",
            f"$JS.API.CONSUMER.CREATE.{COMMANDS.name}.>",
            f"$JS.API.CONSUMER.DELETE.{COMMANDS.name}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{COMMANDS.name}.>",
            f"$JS.ACK.{COMMANDS.name}.>",
            *_list_purges(EVENTS.name, REQUESTS.name),
            *_READING,
            *_FOLLOWING,
            f"{inbox_of(MASTER)}.>",
        ),
        subscribe=("exo.>", f"{inbox_of(MASTER)}.>"),
    )


def _permit_node(node: NodeId) -> Permissions:
    return Permissions(
        publish=(
            f"exo.events.node.{node}.>",
            f"exo.tokens.{node}.>",
            f"exo.telemetry.{node}.>",
            f"exo.logs.{node}.>",
            f"$KV.{NODES.name}.{node}",
            subjects.COMMANDS,
            subjects.REQUESTS,
            subjects.RESPONSES,
            subjects.CONTROL,
            f"$O.{BLOBS.name}.>",
            *_list_purges(REQUESTS.name, RESPONSES.name, f"OBJ_{BLOBS.name}"),
            *_READING,
            *_FOLLOWING,
            _ANSWERS,
        ),
        subscribe=(
            subjects.EVENTS,
            subjects.TOKENS,
            subjects.TELEMETRY,
            subjects.LOGS,
            f"exo.control.{node}.>",
            f"{inbox_of(node_role(node))}.>",
        ),
    )


def _list_purges(*streams: str) -> tuple[str, ...]:
    return tuple(f"$JS.API.STREAM.PURGE.{stream}" for stream in streams)
