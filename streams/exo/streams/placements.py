"""The answer of placement: where a model could go, or why it cannot."""

import msgspec

from exo.streams.ids import NodeId
from exo.streams.instances import Instance, Sharding, Transport


class Unplaceable(msgspec.Struct, frozen=True, kw_only=True):
    """No node or group of nodes will do. `reason` is a sentence that says what would help."""

    code: str
    reason: str


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """One way to place a model. Exactly one of `instance` and `unplaceable` is set.

    `memory_by_node` is in bytes: what each node would have to give.
    """

    sharding: Sharding
    transport: Transport
    nodes: int
    instance: Instance | None = None
    memory_by_node: dict[NodeId, int] = {}
    unplaceable: Unplaceable | None = None
