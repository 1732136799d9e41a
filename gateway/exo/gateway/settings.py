"""Everything that the gateway is told, as frozen values; `exo.ops.up` fills them."""

from pathlib import Path
from typing import Any

import msgspec

from exo.gateway.auth import AccessPolicy
from exo.gateway.ports import Catalog, ClusterSource, GaugeSource, LocalTasks, Placer, StateSource
from exo.streams.ids import BootId, NodeId
from exo.streams.layout import MIB


class NodeIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who this node is."""

    id: NodeId
    boot: BootId
    name: str
    version: str


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the gateway serves. Times in seconds, sizes in bytes."""

    autoload: bool = False
    """Place a known model that is asked for and not running, and wait for it."""
    autoload_timeout: float = 300
    body_limit: int = 32 * MIB
    command_timeout: float = 10
    """How long the master may take to answer a command."""
    import_timeout: float = 3600
    request_timeout: float = 0
    """How long a request may take from its submission to its end; 0 for ever."""
    context_length: int = 0
    """Tokens to place a model for when nobody names a number; 0 leaves it to the model's card."""
    keep_alive: float = 10
    """Silence on an SSE stream after which a comment is sent."""
    stall_timeout: float = 30
    """How long a client may refuse to take data before it is cut off."""
    stall_chunks: int = 20_000
    """How many chunks may wait for one client before it is cut off."""
    broker_patience: float = 60
    """How long running answers outlive the loss of the broker."""
    access: AccessPolicy = AccessPolicy()
    onboarding_file: Path | None = None
    """Holds nothing; its presence says that the first-run tour is done. None: remembered until restart."""


class GatewayPorts(msgspec.Struct, frozen=True, kw_only=True):
    """What the composition root hands in beside the bus."""

    states: StateSource
    gauges: GaugeSource[Any]
    placer: Placer
    catalog: Catalog
    cluster: ClusterSource
    local: LocalTasks
