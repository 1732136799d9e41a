"""Host names to IP addresses, so that one dead DNS server costs nobody but the names it was asked for.

Used by `cluster_stream.py`. The event loop's own look-ups share a few threads with everything else and
are waited for at exit; these have a daemon thread each, which nobody waits for. An IP address needs none.
"""

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from exo.broker.addresses import Address

LOOKUP_TIMEOUT: Final = 6.0
MOST_LOOKUPS: Final = 64
"""Names that are looked up at the same time."""

Where = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]
"""What a socket is made of and connected to."""


def ask_system(host: str) -> list[str]:
    """Give the IP addresses of a name; blocks as long as the system's resolver likes."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(where[0]) for *_, where in found))


class NameLookups:
    """One look-up for each name at a time. What came too late for its asker is kept for the next one."""

    def __init__(self, ask: Callable[[str], list[str]] = ask_system) -> None:
        self._ask = ask
        self._answers: dict[str, Future[list[str]]] = {}

    async def find(self, address: Address) -> list[Where]:
        """Give where to connect, or raise `OSError`: `socket.gaierror`, or `TimeoutError` with a text."""
        try:
            return [_make_where(address.host, address.port)]
        except ValueError:
            return [_make_where(host, address.port) for host in await self._look_up(address.host)]

    async def _look_up(self, name: str) -> list[str]:
        answer = self._answers.get(name)
        if answer is None:
            if sum(not one.done() for one in self._answers.values()) >= MOST_LOOKUPS:
                raise TimeoutError("too many other names are being looked up")
            answer = self._answers[name] = self._begin(name)
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT):
                found = await asyncio.wrap_future(answer)
        except TimeoutError as error:
            raise TimeoutError(f"no DNS server gave the address of {name} within {LOOKUP_TIMEOUT:g} s") from error
        finally:
            # Taken, or failed: whoever asks next wants to know how it is then.
            if answer.done() and self._answers.get(name) is answer:
                del self._answers[name]
        return found

    def _begin(self, name: str) -> Future[list[str]]:
        answer: Future[list[str]] = Future()
        # An asker that gives up must not cancel it for the others.
        answer.set_running_or_notify_cancel()
        threading.Thread(target=self._run, args=(name, answer), name=f"look up {name}", daemon=True).start()
        return answer

    def _run(self, name: str, answer: Future[list[str]]) -> None:
        try:
            answer.set_result(self._ask(name))
        except (OSError, UnicodeError) as error:
            answer.set_exception(error if isinstance(error, OSError) else OSError(f"{name} is no host name: {error}"))


def _make_where(host: str, port: int) -> Where:
    """Give where an IP address is, or raise `ValueError` for a name."""
    bare, _, scope = host.partition("%")
    if ipaddress.ip_address(bare).version == 4:
        return socket.AF_INET, (bare, port)
    # An interface that is gone meanwhile has no number; without one the connection fails with a reason.
    number = _number_interface(scope) if scope else 0
    return socket.AF_INET6, (bare, port, 0, number)


def _number_interface(scope: str) -> int:
    if scope.isdigit():
        return int(scope)
    try:
        return socket.if_nametoindex(scope)
    except OSError:
        return 0
