"""What `peers.py` is given and what it tells: settings, peers, link samples, and the report of all attempts.

Pure data. `cluster.py` reads it, the API and `exo doctor` show it. `*_at` are Unix ms, but for `Peer.heard_at`.
"""

from pathlib import Path
from typing import Final, Literal

import msgspec

from exo.broker.hello import Hello
from exo.streams.ids import BootId, NodeId

DEFAULT_PORT: Final = 52414
NOBODY: Final = NodeId("")

Source = Literal["bootstrap", "zeroconf", "member", "remembered", "greeting"]
"""Who told an address: a person, the LAN, another peer, an earlier run, or the peer itself."""

RefusalCode = Literal[
    "other_cluster", "secret_mismatch", "version_incompatible", "same_node", "duplicate_node", "malformed", "connected"
]
"""`same_node`: it is ourselves. `duplicate_node`: another live process has the same node id.
`connected`: the pair has its one connection already."""


class PeersSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are and where to listen and look. `port` 0 lets the system pick."""

    node: NodeId
    boot: BootId
    name: str
    cluster: str
    version: str
    host: str = ""
    """`127.0.0.1` keeps to this machine; empty listens on all interfaces."""
    port: int = DEFAULT_PORT
    port_is_explicit: bool = False
    """A busy port that a person chose is an error; a busy default is replaced by any free one."""
    bootstrap: tuple[str, ...] = ()
    discovery: bool = True
    """Look for others by zeroconf, on the interfaces that we listen on."""
    remembered: Path | None = None
    """The file with the addresses of earlier peers."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A node that proved to be a member."""

    hello: Hello
    address: str
    """Where its cluster port was reached or should be (`host:port`)."""
    heard_at: float
    """When it was last heard, by our monotonic clock in seconds."""
    connected: bool
    """Whether its TCP connection stands; a process that dies takes it down at once."""


class LinkSample(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of the way between two addresses (without ports): seconds there and back, bytes per second."""

    local_address: str
    remote_address: str
    latency: float
    bandwidth: float


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What became of dialling one address. `outcome` is `untried`, `connected`, or the kind of failure.

    All addresses of a node that is reached are `connected`, by whichever it was met.
    """

    address: str
    sources: tuple[Source, ...]
    outcome: str
    detail: str = ""
    node: NodeId = NodeId("")
    """Who is said to be there, or was."""
    failures: int = 0
    """In a row."""
    tried_at: int = 0


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody was turned away: by us, or we by them. `node`, `name`, `cluster` and `version` are the other's."""

    code: RefusalCode
    reason: str
    by_us: bool
    node: NodeId
    name: str
    cluster: str
    version: str
    address: str
    refused_at: int
    times: int = 1


class Stranger(msgspec.Struct, frozen=True, kw_only=True):
    """A node seen on the LAN that belongs to another cluster."""

    node: NodeId
    name: str
    cluster: str
    version: str
    address: str
    seen_at: int


class BadAddress(msgspec.Struct, frozen=True):
    """An address that could not be read, and why."""

    text: str
    reason: str


class Unadmitted(msgspec.Struct, frozen=True):
    """A member that this node could not let in, and why."""

    node: NodeId
    name: str
    reason: str


class DiscoveryState(msgspec.Struct, frozen=True):
    """`off`, `running` or `failed` with its reason."""

    state: Literal["off", "running", "failed"]
    reason: str = ""
    seen: int = 0
    """Nodes of this cluster that say where they are, ourselves not counted."""


class PeersReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that happened on the way to other nodes, newest last."""

    port: int
    discovery: DiscoveryState
    attempts: tuple[Attempt, ...]
    refusals: tuple[Refusal, ...]
    strangers: tuple[Stranger, ...]
    bad_addresses: tuple[BadAddress, ...]
    unadmitted: tuple[Unadmitted, ...] = ()
    counters: dict[str, int]
    """What was closed or skipped: `garbage`, `oversized`, `silent`, `flooded`, `unknown_frames`."""
