"""Two hosts with a proxy as the only line between them, at their own addresses and ports.

Each host sits on a LAN of its own, beside a stand-in that has the other one's address. What connects to the
stand-in is carried to the real host over proxies. No multicast gets across: the hosts are told of each other.
"""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from support.hosts import Host, Lan
from support.proxy import Proxy


class SlowLine:
    """`left` and `right` reach each other's `ports` only through `proxies`; a context manager."""

    def __init__(self, ports: Iterable[int]) -> None:
        with ExitStack() as stack:
            # Addresses 1 and 2 on both: what is real on one is a stand-in on the other.
            near = stack.enter_context(Lan(2))
            far = stack.enter_context(Lan(2, beside=near))
            self.left, self.right = near.hosts[0], far.hosts[1]
            self.proxies = [
                stack.enter_context(_join(host, seen_by=seen_by, from_stand_in=stand_in, port=port))
                for port in ports
                for host, seen_by, stand_in in (
                    (self.left, far.hosts[0], near.hosts[1]),
                    (self.right, near.hosts[1], far.hosts[0]),
                )
            ]
            self._stack = stack.pop_all()

    def each(self, change: Callable[[Proxy], None]) -> None:
        """Change the whole line: `line.each(Proxy.cut)`."""
        for proxy in self.proxies:
            change(proxy)

    def stop(self) -> None:
        """End both hosts and the line."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _join(host: Host, *, seen_by: Host, from_stand_in: Host, port: int) -> Proxy:
    address = f"{host.address}:{port}"
    return Proxy(address, listen=address, listen_in=seen_by.namespace.enter, enter=from_stand_in.namespace.step_in)
