"""Nodes find each other by zeroconf: real multicast, on the loopback interface."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import structlog
from zeroconf import Error as ZeroconfError
from zeroconf import ServiceStateChange, Zeroconf

from exo.broker import discovery as discovery_module
from exo.broker.discovery import Discovery
from exo.broker.peering import PeersSettings
from exo.broker.peers import Peers
from exo.streams.ids import NodeId
from support.nats import wait_until
from support.peers import make_settings, running_peers


async def wait_running(peers: Peers, *, seen: int = 0) -> None:
    await wait_until(
        lambda: (peers.report().discovery.state, peers.report().discovery.seen >= seen) == ("running", True),
        what=f"discovery runs and has seen {seen}",
    )


async def test_two_nodes_that_know_no_address_meet() -> None:
    async with (
        running_peers(make_settings("a", cluster="lan-one", discovery=True)) as a,
        running_peers(make_settings("b", cluster="lan-one", discovery=True)) as b,
    ):
        await wait_until(lambda: NodeId("b") in a.reached() and NodeId("a") in b.reached(), what="they meet")
        await wait_running(a, seen=1)
        assert any("zeroconf" in attempt.sources for peers in (a, b) for attempt in peers.report().attempts)


async def test_a_node_of_another_cluster_is_shown_and_not_dialled() -> None:
    async with (
        running_peers(make_settings("a", cluster="lan-two", discovery=True)) as a,
        running_peers(make_settings("b", cluster="lan-three", discovery=True)) as b,
    ):
        await wait_until(lambda: any(one.name == "the-b" for one in a.report().strangers), what="a shows b")
        (stranger,) = [one for one in a.report().strangers if one.name == "the-b"]
        assert (stranger.cluster, stranger.version, stranger.node) == ("lan-three", "1.0", "b")
        assert stranger.address.endswith(f":{b.port}")
        assert a.report().attempts == ()


async def test_without_a_network_discovery_says_so_and_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoMulticast:
        def __init__(self, **options: object) -> None:
            raise OSError(19, "No such device")

    monkeypatch.setattr(discovery_module, "POLL", 0.05)
    with monkeypatch.context() as patch, structlog.testing.capture_logs() as logs:
        patch.setattr(discovery_module, "AsyncZeroconf", NoMulticast)
        async with running_peers(make_settings("a", cluster="lan-four", discovery=True)) as a:
            await wait_until(lambda: a.report().discovery.state == "failed", what="it fails")
            await wait_until(lambda: "No such device" in a.report().discovery.reason, what="it says why")
            patch.undo()
            monkeypatch.setattr(discovery_module, "POLL", 0.05)
            await wait_running(a)
    told = [line for line in logs if line["event"] == "cannot look for nodes on the network"]
    assert len(told) == 1, "the same reason every few seconds is one line"


async def test_an_error_of_zeroconf_itself_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __init__(self, **options: object) -> None:
            raise ZeroconfError("broken")

    monkeypatch.setattr(discovery_module, "AsyncZeroconf", Broken)
    async with running_peers(make_settings("a", discovery=True)) as a:
        await wait_until(lambda: a.report().discovery.reason == "broken", what="it fails with its reason")
        async with running_peers(make_settings("b", bootstrap=(f"127.0.0.1:{a.port}",))):
            await wait_until(lambda: NodeId("b") in a.reached(), what="the cluster port works without it")


def make_discovery(settings: PeersSettings, strangers: set[NodeId]) -> Discovery:
    heard: list[object] = []
    return Discovery(
        settings,
        port=1,
        suggest=lambda address, node: heard.append((address, node)),
        stranger=lambda stranger: strangers.add(stranger.node),
        stranger_left=strangers.discard,
    )


@asynccontextmanager
async def running_discovery(settings: PeersSettings) -> AsyncGenerator[Discovery]:
    discovery = make_discovery(settings, set())
    await discovery.start()
    try:
        yield discovery
    finally:
        await discovery.stop()


async def test_a_changed_address_is_registered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[tuple[str, ...]] = []
    monkeypatch.setattr(discovery_module, "POLL", 0.05)
    monkeypatch.setattr(discovery_module, "list_interface_addresses", lambda: found)
    original = Discovery._register

    async def register(self: Discovery, addresses: tuple[str, ...]) -> None:
        opened.append(addresses)
        self._settings = make_settings("a", discovery=True)
        await original(self, addresses)
        self._settings = everywhere

    monkeypatch.setattr(Discovery, "_register", register)
    everywhere = make_settings("a", discovery=True, host="")
    found: list[str] = []
    async with running_discovery(everywhere) as discovery:
        await wait_until(lambda: "no network address" in discovery.state.reason, what="there is no network")
        found = ["10.9.9.1"]
        await wait_until(lambda: opened == [("10.9.9.1",)], what="the network came")
        found = ["10.9.9.2"]
        await wait_until(lambda: opened == [("10.9.9.1",), ("10.9.9.2",)], what="the address changed")


async def test_it_is_off_when_not_asked_for() -> None:
    async with running_peers(make_settings("a")) as a:
        assert a.report().discovery.state == "off"


async def test_nodes_are_counted_once_without_ourselves_and_strangers_that_left_are_forgotten() -> None:
    strangers: set[NodeId] = set()
    discovery = make_discovery(make_settings("a"), strangers)

    def announce(settings: PeersSettings) -> str:
        info = make_discovery(settings, set())._describe(("10.0.0.2",))
        discovery._take(info.name, info)
        return info.name

    announce(make_settings("a", boot="an earlier life"))
    announce(make_settings("b", boot="an earlier life"))
    announce(make_settings("b"))
    elsewhere = announce(make_settings("c", cluster="work"))
    assert discovery._count_others() == 1
    assert strangers == {NodeId("c")}
    announce(make_settings("c", boot="later"))
    discovery._hear(Zeroconf.__new__(Zeroconf), "", elsewhere, ServiceStateChange.Removed)
    assert strangers == set()
