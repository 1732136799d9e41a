"""The other nodes: found, dialled, proven, listened to."""

from collections.abc import Awaitable, Callable

from exo.broker.credentials import Credentials
from exo.broker.hello import Hello
from exo.broker.peering import LinkSample, Peer, PeersReport, PeersSettings, Source
from exo.streams.ids import NodeId


async def admit_all(hello: Hello) -> None:
    """Need nothing done before a peer is told more."""


class Peers:
    """All peers of this node."""

    port: int
    addresses: tuple[str, ...]
    """Where our cluster port can be tried; Peers itself fills `addresses` and `members` of every Hello it sends."""

    def __init__(
        self,
        settings: PeersSettings,
        *,
        credentials: Credentials,
        hello: Callable[[], Hello],
        admit: Callable[[Hello], Awaitable[None]] = admit_all,
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    def reached(self) -> dict[NodeId, Peer]:
        raise NotImplementedError

    def known(self) -> dict[NodeId, Peer]:
        raise NotImplementedError

    def suggest(self, address: str, *, source: Source) -> None:
        raise NotImplementedError

    def announce(self) -> None:
        raise NotImplementedError

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        raise NotImplementedError

    async def measure(self, node: NodeId) -> list[LinkSample]:
        raise NotImplementedError

    async def rekey(self, credentials: Credentials) -> None:
        raise NotImplementedError

    def report(self) -> PeersReport:
        raise NotImplementedError
