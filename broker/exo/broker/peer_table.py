"""Who is connected and what was heard of whom. No I/O but for cutting a connection; used by `peers.py`."""

from collections.abc import Callable
from typing import Final

import structlog
from msgspec.structs import replace

from exo.broker.hello import HEARTBEAT, SILENCE, Hello
from exo.broker.link import Link
from exo.broker.listeners import Listeners
from exo.broker.peering import Peer, RefusalCode
from exo.streams.ids import NodeId

log = structlog.get_logger(__name__)

MOST_KNOWN: Final = 256


class PeerTable:
    """All peers and the one connection to each. `clock` is monotonic."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.links: dict[NodeId, Link] = {}
        self._peers: dict[NodeId, Peer] = {}
        self._listeners = Listeners[()]("peers")
        self._clock = clock
        self._ticked_at = self._woke_at = clock()
        self._reached: frozenset[NodeId] = frozenset()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener()` when a peer came, went, or said something new; gives a function that ends it."""
        return self._listeners.add(listener)

    # Connections.

    def claim(self, link: Link, *, we_decide: bool) -> tuple[RefusalCode, str] | None:
        """Take a connection as the one to its node, or give the reason to refuse it.

        Only the node that decides refuses a second connection; the other follows. A clone is refused by
        both as long as the first process of that id lives.
        """
        earlier = self.links.get(link.greeting.node)
        if earlier is not None and not self._is_dead(earlier):
            if earlier.greeting.boot != link.greeting.boot:
                other = earlier.greeting.name
                return "duplicate_node", f"node {link.greeting.node} is connected already, from {other}: a copied id"
            if we_decide:
                return "connected", "the two nodes have a connection already"
        if earlier is not None:
            earlier.stream.abort()
        self.links[link.greeting.node] = link
        return None

    def _is_dead(self, link: Link) -> bool:
        now = self._clock()
        return link.stream.closed or link.is_silent(now, listening_since=self._listening_since(now))

    def drop(self, link: Link) -> bool:
        """Forget a connection that ended; tells whether its node is cut off by that."""
        node = link.greeting.node
        if self.links.get(node) is not link:
            return False
        del self.links[node]
        peer = self._peers.get(node)
        if peer is not None:
            self._peers[node] = replace(peer, connected=False, heard_at=link.heard_at)
            log.info("lost a peer", name=peer.hello.name, node=node, address=link.address)
            self._listeners.tell()
        return True

    def clear(self) -> None:
        """Forget every connection, because the node stops."""
        self.links.clear()

    def hear(self, link: Link, hello: Hello) -> None:
        """Take what a peer says."""
        node = hello.node
        if self.links.get(node) is not link:
            return
        earlier = self._peers.pop(node, None)
        self._peers[node] = Peer(hello=hello, address=link.address, heard_at=link.heard_at, connected=True)
        if earlier is None or not earlier.connected:
            log.info("met a peer", name=hello.name, node=node, address=link.address, role=hello.role)
            self._forget_old()
        if earlier is None or not earlier.connected or earlier.hello != hello:
            self._listeners.tell()

    def _forget_old(self) -> None:
        gone = [node for node, peer in self._peers.items() if not peer.connected]
        for node in gone[: max(len(self._peers) - MOST_KNOWN, 0)]:
            del self._peers[node]

    # Peers.

    def known(self) -> dict[NodeId, Peer]:
        """Give all peers that were ever heard."""
        return {node: self._refresh(peer) for node, peer in self._peers.items()}

    def reached(self) -> dict[NodeId, Peer]:
        """Give the peers heard within `SILENCE`, of the time in which we could have heard them."""
        now = self._clock()
        return {
            node: peer
            for node, peer in self.known().items()
            if now - peer.heard_at <= SILENCE or (peer.connected and now - self._listening_since(now) <= SILENCE)
        }

    def _listening_since(self, now: float) -> float:
        # Without ticks we were stopped or asleep, and what came meanwhile is not read yet.
        return now if now - self._ticked_at > 2 * HEARTBEAT else self._woke_at

    def _refresh(self, peer: Peer) -> Peer:
        link = self.links.get(peer.hello.node)
        return replace(peer, heard_at=link.heard_at) if link is not None and peer.connected else peer

    def tick(self) -> None:
        """Cut connections that fell silent, and tell who is not reached any more; called each `HEARTBEAT`."""
        now = self._clock()
        self._woke_at = self._listening_since(now)
        self._ticked_at = now
        for link in tuple(self.links.values()):
            if link.is_silent(now, listening_since=self._woke_at):
                log.info("a peer fell silent", name=link.greeting.name, node=link.greeting.node, address=link.address)
                link.stream.abort()
                self.drop(link)
        reached = frozenset(self.reached())
        if reached != self._reached:
            self._reached = reached
            self._listeners.tell()
