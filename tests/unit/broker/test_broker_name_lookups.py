"""A dead name costs nobody but itself, and never keeps a process from ending."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from exo.broker import name_lookups
from exo.broker.addresses import Address
from exo.broker.name_lookups import MOST_LOOKUPS, NameLookups
from support.nats import wait_until
from support.peers import address_of, make_settings, running_peers, wait_met


@contextmanager
def dead_dns() -> Generator[Callable[[str], list[str]]]:
    """A resolver that answers nobody until the end."""
    end = threading.Event()

    def ask(host: str) -> list[str]:
        end.wait(30)
        return ["127.0.0.1"]

    try:
        yield ask
    finally:
        end.set()


async def test_an_ip_address_needs_no_look_up() -> None:
    with dead_dns() as ask:
        lookups = NameLookups(ask)
        assert await lookups.find(Address("10.0.0.1", 1)) == [(socket.AF_INET, ("10.0.0.1", 1))]
        assert await lookups.find(Address("fd00::1", 1)) == [(socket.AF_INET6, ("fd00::1", 1, 0, 0))]


async def test_a_name_that_hangs_is_asked_for_once_and_says_what_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookups, "LOOKUP_TIMEOUT", 0.02)
    asked: list[str] = []
    with dead_dns() as wait:

        def ask(host: str) -> list[str]:
            asked.append(host)
            return wait(host)

        lookups = NameLookups(ask)
        for _ in range(3):
            with pytest.raises(TimeoutError, match="no DNS server gave the address of nas"):
                await lookups.find(Address("nas", 1))
        assert asked == ["nas"]


async def test_an_answer_that_came_late_is_for_the_next_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookups, "LOOKUP_TIMEOUT", 0.02)
    asked: list[str] = []
    with dead_dns() as wait:

        def ask(host: str) -> list[str]:
            asked.append(host)
            return wait(host)

        lookups = NameLookups(ask)
        with pytest.raises(TimeoutError):
            await lookups.find(Address("nas", 1))
    await wait_until(lambda: "look up nas" not in {one.name for one in threading.enumerate()}, what="the answer came")
    assert await lookups.find(Address("nas", 7)) == [(socket.AF_INET, ("127.0.0.1", 7))]
    assert asked == ["nas"]
    await lookups.find(Address("nas", 7))
    assert asked == ["nas", "nas"], "it is asked again afterwards"


async def test_look_ups_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_lookups, "LOOKUP_TIMEOUT", 0.01)
    with dead_dns() as ask:
        lookups = NameLookups(ask)
        asking = [lookups.find(Address(f"n{number}", 1)) for number in range(MOST_LOOKUPS)]
        assert {type(one) for one in await asyncio.gather(*asking, return_exceptions=True)} == {TimeoutError}
        with pytest.raises(TimeoutError, match="too many"):
            await lookups.find(Address("another", 1))


async def test_what_the_resolver_says_is_passed_on() -> None:
    def ask(host: str) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(socket.gaierror):
        await NameLookups(ask).find(Address("nas", 1))


async def test_a_good_address_is_met_beside_dead_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with dead_dns() as ask:

        def ask_nobody(host: str, *_: object, **__: object) -> list[str]:
            return ask(host)

        monkeypatch.setattr(socket, "getaddrinfo", ask_nobody)
        dead = tuple(f"dead-{number}.example" for number in range(12))
        async with running_peers(make_settings("a")) as a:
            began = time.monotonic()
            async with running_peers(make_settings("b", bootstrap=(*dead, address_of(a)))) as b:
                await wait_met(b, a.settings.node)
                assert time.monotonic() - began < 2


def test_a_process_ends_while_a_look_up_hangs() -> None:
    program = """
import asyncio, socket, time
from exo.broker.addresses import Address
from exo.broker.name_lookups import NameLookups
async def main():
    try:
        async with asyncio.timeout(0.1):
            await NameLookups(lambda host: time.sleep(60) or []).find(Address("nas", 1))
    except TimeoutError:
        print("gave up")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "gave up\n"
