"""What connects nodes: which interface it is, what is news, when it is measured, and what is told."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from exo.broker.errors import BusUnavailableError
from exo.broker.memory import MemoryBus
from exo.services.clock import FakeClock
from exo.services.journal import Journal
from exo.services.links.compare import find_news, make_links
from exo.services.links.interfaces import Interface, bare, classify_linux, find_interface, read_interfaces
from exo.services.links.schedule import BANDWIDTH_INTERVAL, LATENCY_INTERVAL, Schedule, Turn
from exo.services.links.service import SETTLE, TICK, Links
from exo.services.telemetry.gauges import Gauges
from exo.streams.codec import decode_event
from exo.streams.events import FACTS, Envelope, LinksMeasured, NodeJoined, NodeLeft, Recorded, TaskAssigned
from exo.streams.ids import BootId, NodeId
from exo.streams.layout import EVENTS
from exo.streams.links import Link
from exo.streams.state import State
from exo.streams.telemetry import LinksGauge
from support.services import BOOT, NODE, NOW, eventually, fold, joined_state, make_facts, make_task

PEER, OTHER = NodeId("node-b"), NodeId("node-c")
ETHERNET = Interface("eth0", "ethernet")
LINK = Link(
    peer=PEER,
    local_address="10.0.0.1",
    remote_address="10.0.0.2",
    latency=0.001,
    interface="eth0",
    kind="ethernet",
    bandwidth=1e8,
)

# Interfaces.


def make_device(net: Path, name: str, *, kind: int = 1, driver: str = "", wireless: bool = False) -> None:
    device = net / name
    (device / "device").mkdir(parents=True)
    (device / "type").write_text(f"{kind}\n")
    if driver:
        (net / "drivers" / driver).mkdir(parents=True)
        (device / "device" / "driver").symlink_to(net / "drivers" / driver)
    if wireless:
        (device / "wireless").mkdir()


def test_linux_tells_the_kind_of_an_interface(tmp_path: Path) -> None:
    make_device(tmp_path, "enp3s0", driver="r8169")
    make_device(tmp_path, "wlp4s0", wireless=True)
    make_device(tmp_path, "enx0", driver="thunderbolt-net")
    make_device(tmp_path, "wg0", kind=65534)
    make_device(tmp_path, "docker0")
    names = ("lo", "enp3s0", "wlp4s0", "enx0", "wg0", "docker0", "gone0")
    kinds = [classify_linux(name, net=tmp_path) for name in names]
    assert kinds == ["loopback", "ethernet", "wifi", "thunderbolt", "other", "other", "other"]


def test_own_addresses_have_interfaces() -> None:
    assert read_interfaces()["127.0.0.1"].kind == "loopback"


@pytest.mark.parametrize(
    ("local", "remote", "expected"),
    [
        ("10.0.0.1", "10.0.0.2", ETHERNET),
        ("::ffff:10.0.0.1", "10.0.0.2", ETHERNET),
        ("10.0.0.1", "10.0.0.1", Interface("lo", "loopback")),
        ("127.0.0.1", "127.0.0.1", Interface("lo", "loopback")),
        ("192.168.7.7", "192.168.7.8", Interface("", "other")),
        ("nonsense", "nonsense", Interface("", "other")),
    ],
)
def test_a_pair_of_addresses_has_an_interface(local: str, remote: str, expected: Interface) -> None:
    assert find_interface({"10.0.0.1": ETHERNET}, local=local, remote=remote) == expected


def test_the_zone_of_an_address_does_not_matter() -> None:
    assert bare("fe80::1%en0") == "fe80::1"


# What is news.


@pytest.mark.parametrize(
    ("changes", "news"),
    [
        ({}, False),
        ({"latency": 0.0019, "measured_at": 5}, False),
        ({"latency": 0.0022}, True),
        ({"latency": 0.0004}, True),
        ({"bandwidth": 1.25e8}, False),
        ({"bandwidth": 1.4e8}, True),
        ({"bandwidth": 0.6e8}, True),
        ({"kind": "wifi"}, True),
        ({"remote_address": "10.0.0.3"}, True),
    ],
)
def test_only_significant_changes_are_news(changes: dict[str, Any], news: bool) -> None:
    assert bool(find_news([LINK], [replace(LINK, **changes)])) is news


def test_small_latencies_may_double() -> None:
    assert not find_news([replace(LINK, latency=0.0001)], [replace(LINK, latency=0.0005)])


def test_numbers_of_what_stays_on_one_machine_are_no_news() -> None:
    here = replace(LINK, kind="loopback")
    assert not find_news([here], [replace(here, latency=1, bandwidth=1)])
    assert find_news([replace(here, bandwidth=0)], [here]).changed == {PEER}


def test_a_pair_that_comes_or_goes_and_a_first_bandwidth_are_news() -> None:
    assert find_news([], [LINK]).changed == {PEER}
    assert find_news([LINK], []).changed == {PEER}
    assert find_news([replace(LINK, bandwidth=0)], [LINK]).changed == {PEER}
    assert find_news([LINK], [replace(LINK, latency=1)]).moved == {PEER}
    assert not find_news([], [])


def probe(latency: float = 0.001, bandwidth: float = 1e8, local: str = "10.0.0.1", remote: str = "10.0.0.2") -> Any:
    return SimpleNamespace(local_address=local, remote_address=remote, latency=latency, bandwidth=bandwidth)


def test_a_bandwidth_stands_until_it_is_measured_again() -> None:
    (link,) = make_links([probe(bandwidth=0)], peer=PEER, before=[LINK], interfaces={"10.0.0.1": ETHERNET}, now=NOW)
    assert link == replace(LINK, measured_at=NOW)


# When.


def test_latency_is_measured_each_minute_and_bandwidth_each_ten() -> None:
    schedule = Schedule(lambda: 0.0)
    assert schedule.turns([PEER], now=0, busy=False) == [Turn(PEER, bandwidth=True)]
    schedule.done(Turn(PEER, bandwidth=True), now=0)
    assert schedule.turns([PEER], now=LATENCY_INTERVAL - 1, busy=False) == []
    assert schedule.turns([PEER], now=LATENCY_INTERVAL, busy=False) == [Turn(PEER, bandwidth=False)]
    schedule.done(Turn(PEER, bandwidth=False), now=LATENCY_INTERVAL)
    assert schedule.turns([PEER], now=BANDWIDTH_INTERVAL, busy=False) == [Turn(PEER, bandwidth=True)]


def test_a_change_is_measured_soon() -> None:
    schedule = Schedule(lambda: 0.0)
    schedule.turns([PEER], now=0, busy=False)
    schedule.done(Turn(PEER, bandwidth=True), now=0)
    schedule.change(PEER, now=3)
    assert schedule.turns([PEER], now=2, busy=False) == []
    assert schedule.turns([PEER], now=3, busy=False) == [Turn(PEER, bandwidth=True)]
    schedule.done(Turn(PEER, bandwidth=True), now=3)
    schedule.change_all(now=4)
    assert schedule.turns([PEER], now=4, busy=False) == [Turn(PEER, bandwidth=True)]


def test_no_bandwidth_is_measured_while_tokens_run() -> None:
    schedule = Schedule(lambda: 0.0)
    assert schedule.turns([PEER], now=0, busy=True) == [Turn(PEER, bandwidth=False)]
    schedule.done(Turn(PEER, bandwidth=False), now=0)
    assert schedule.turns([PEER], now=1, busy=False) == [Turn(PEER, bandwidth=True)]


def test_intervals_are_spread() -> None:
    schedule = Schedule(lambda: 1.0)
    schedule.done(Turn(PEER, bandwidth=True), now=0)
    assert schedule.turns([PEER], now=1.4 * LATENCY_INTERVAL, busy=False) == []
    assert schedule.turns([PEER], now=1.5 * LATENCY_INTERVAL, busy=False) == [Turn(PEER, bandwidth=False)]


# Telling.


class FakeProjection:
    """State as a test sets it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.listeners: list[Any] = []

    def on_event(self, listener: Any) -> Any:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def happen(self, *events: Any, boot: BootId = BOOT) -> None:
        for event in events:
            self.state = fold(self.state, event, boot=boot)
            actor = event.node if isinstance(event, FACTS) else NODE
            envelope = Envelope(id="id", at=NOW, actor=actor, boot=boot, event=event)
            for listener in self.listeners:
                listener(Recorded(self.state.applied, envelope), self.state)


class FakeProber:
    """Gives what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[NodeId, Sequence[Any]] = {PEER: [probe()]}
        self.asked: list[Turn] = []
        self.fault: Exception | None = None

    async def measure(self, node: NodeId, *, bandwidth: bool = True) -> Sequence[Any]:
        self.asked.append(Turn(node, bandwidth))
        if self.fault is not None:
            raise self.fault
        return self.answers.get(node, ())


class Bench:
    def __init__(self) -> None:
        self.bus, self.clock, self.prober = MemoryBus(), FakeClock(), FakeProber()
        self.gauges = Gauges(self.bus, clock=self.clock)
        self.projection = FakeProjection(joined_state(node=PEER, state=joined_state()))
        self.journal = Journal(self.bus, clock=self.clock, node=NODE, boot=BOOT)
        self.interfaces: Mapping[str, Interface] = {"10.0.0.1": ETHERNET}

    async def read_interfaces(self) -> Mapping[str, Interface]:
        return self.interfaces

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        projection: Any = self.projection
        links = Links(
            self.bus,
            prober=self.prober,
            projection=projection,
            journal=self.journal,
            node=NODE,
            clock=self.clock,
            interfaces=self.read_interfaces,
            draw=lambda: 0.0,
        )
        tasks = [asyncio.create_task(work) for work in (self.gauges.run(), self.journal.run(), links.run())]
        try:
            await self.clock.advance(SETTLE)
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def facts(self) -> list[LinksMeasured]:
        """Everything written so far; the newest is folded into State, as the log would do."""
        await self.journal.drain(timeout=5)
        stored = await self.bus.read(EVENTS.name, "exo.events.>")
        recorded = [decode_event(message.payload, sequence=message.sequence) for message in stored]
        facts = [one.envelope.event for one in recorded if one.envelope is not None]
        found = [fact for fact in facts if isinstance(fact, LinksMeasured)]
        if found:
            self.projection.state = fold(self.projection.state, found[-1])
        return found

    async def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds / TICK)):
            await self.clock.advance(TICK)


async def test_a_peer_is_measured_and_its_links_are_told_once() -> None:
    bench = Bench()
    async with bench.running():
        (fact,) = await bench.facts()
        assert fact.links == (replace(LINK, measured_at=bench.clock.now()),)
        await bench.pass_time(3 * BANDWIDTH_INTERVAL)
        assert len(await bench.facts()) == 1
    asked = [turn.bandwidth for turn in bench.prober.asked]
    assert sum(asked) <= 4
    assert 25 <= len(asked) <= 31


async def test_the_newest_numbers_are_a_gauge() -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.prober.answers[PEER] = [probe(latency=0.0012, bandwidth=0)]
        await bench.pass_time(LATENCY_INTERVAL)

        async def newest() -> bool:
            reading = bench.gauges.get(NODE, "links")
            gauge = reading.sample.gauge if reading else None
            return isinstance(gauge, LinksGauge) and [link.latency for link in gauge.links] == [0.0012]

        await eventually(newest, what="the gauge")
        assert len(await bench.facts()) == 1


async def test_a_busy_moment_is_not_told() -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.prober.answers[PEER] = [probe(latency=0.02, bandwidth=0)]
        await bench.pass_time(LATENCY_INTERVAL)
        asked = len(bench.prober.asked)
        bench.prober.answers[PEER] = [probe()]
        await bench.pass_time(TICK)
        assert bench.prober.asked[asked:] == [Turn(PEER, bandwidth=True)]
        await bench.pass_time(3 * LATENCY_INTERVAL)
        assert len(await bench.facts()) == 1


async def test_a_significant_change_is_told_when_it_lasts() -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.prober.answers[PEER] = [probe(latency=0.02, bandwidth=0)]
        await bench.pass_time(LATENCY_INTERVAL)
        assert len(await bench.facts()) == 1
        await bench.pass_time(TICK)
        facts = await bench.facts()
        assert len(facts) == 2
        assert facts[-1].links[0].latency == 0.02
        assert facts[-1].links[0].bandwidth == 1e8


async def test_a_node_that_joins_or_returns_is_measured_soon() -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.prober.answers[OTHER] = [probe(remote="10.0.0.3")]
        bench.projection.happen(NodeJoined(node=OTHER, facts=make_facts()))
        bench.projection.happen(NodeJoined(node=PEER, facts=make_facts()), boot=BootId("boot-2"))
        asked = len(bench.prober.asked)
        await bench.pass_time(SETTLE + TICK)
        assert bench.prober.asked[asked:] == [Turn(PEER, bandwidth=True), Turn(OTHER, bandwidth=True)]
        facts = await bench.facts()
        assert [link.peer for link in facts[-1].links] == [PEER, OTHER]


async def test_new_own_addresses_are_reason_to_measure_again() -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.interfaces = {**bench.interfaces, "10.1.0.1": Interface("bridge0", "thunderbolt")}
        bench.prober.answers[PEER] = [probe(), probe(bandwidth=4e9, local="10.1.0.1", remote="10.1.0.2")]
        await bench.pass_time(2 * TICK)
        assert [link.kind for link in (await bench.facts())[-1].links] == ["ethernet", "thunderbolt"]


async def test_a_peer_that_is_gone_keeps_its_numbers_and_is_not_asked() -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.projection.happen(NodeLeft(node=PEER))
        asked = len(bench.prober.asked)
        await bench.pass_time(BANDWIDTH_INTERVAL)
        assert len(bench.prober.asked) == asked
        assert len(await bench.facts()) == 1


@pytest.mark.parametrize("fault", [BusUnavailableError("gone"), TimeoutError(), OSError("no route")])
async def test_a_peer_that_does_not_answer_keeps_its_numbers(fault: Exception) -> None:
    bench = Bench()
    async with bench.running():
        await bench.facts()
        bench.prober.fault = fault
        await bench.pass_time(2 * LATENCY_INTERVAL)
        bench.prober.fault = None
        bench.prober.answers[PEER] = [probe(bandwidth=0)]
        await bench.pass_time(2 * LATENCY_INTERVAL)
        assert len(await bench.facts()) == 1


async def test_no_bandwidth_is_measured_while_this_node_works() -> None:
    bench = Bench()
    bench.projection.happen(TaskAssigned(task=make_task()))
    async with bench.running():
        await bench.pass_time(LATENCY_INTERVAL)
        assert {turn.bandwidth for turn in bench.prober.asked} == {False}
        bench.projection.state = replace(bench.projection.state, tasks={})
        await bench.pass_time(TICK)
        assert bench.prober.asked[-1].bandwidth
