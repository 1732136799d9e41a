"""Several nodes: how long answers pause when the hub is lost, how soon a newcomer is seen, what sixteen cost at rest.

Real processes on loopback; the lost host is one of three on a LAN of network namespaces. The clients run in this
process and measure the time between two pieces of text of one stream, at 40 tokens a second each.
"""

import asyncio
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from bench.processes import read_usage
from bench.target import Result
from support.hosts import Lan
from support.many_nodes import Member, running_nodes, starting
from support.streams import SLOW, WORDS, RunningStreams, TimedStream

STREAMS = 20
JOINS = 5
CROWD = 16
REST_SECONDS = 30


def run() -> list[Result]:
    """Measure all of it."""
    results: list[Result] = []
    for measure in (_measure_broker_loss, _measure_host_loss, _measure_join, _measure_rest):
        with tempfile.TemporaryDirectory() as directory:
            results += measure(Path(directory))
    return results


def _measure_broker_loss(directory: Path) -> list[Result]:
    with running_nodes(directory, 3, env=SLOW, first=["--no-worker"]) as members:
        hub, worker, other = members.nodes
        worker.place_here()
        records = asyncio.run(_break_under_streams([worker, other], lambda: hub.signal_broker(signal.SIGKILL)))
    pauses = [record.longest_pause() for record in records]
    what = f"nats-server killed under {STREAMS} streams"
    return [
        Result("cluster", f"{what}: median pause", statistics.median(pauses), "s", "at most", 1),
        Result("cluster", f"{what}: longest pause", max(pauses), "s", "at most", 3),
        _count_broken(what, records),
    ]


def _measure_host_loss(directory: Path) -> list[Result]:
    with Lan(3) as lan, running_nodes(directory, 3, env=SLOW, hosts=lan.hosts, first=["--no-worker"]) as members:
        hub, worker, other = members.nodes
        worker.place_here()
        records = asyncio.run(_break_under_streams([worker, other], hub.lose))
    pauses = sorted(record.longest_pause() for record in records)
    what = f"the hub's host lost under {STREAMS} streams"
    note = f"shortest {pauses[0]:.2f} s, median {statistics.median(pauses):.2f} s"
    return [
        Result("cluster", f"{what}: longest pause", pauses[-1], "s", "at most", 5, note=note),
        _count_broken(what, records),
    ]


def _count_broken(what: str, records: list[TimedStream]) -> Result:
    broken = sum(record.text != WORDS or record.finishes != ["stop"] for record in records)
    return Result("cluster", f"{what}: broken streams", broken, "", "at most", 0)


async def _break_under_streams(nodes: list[Member], harm: Callable[[], object]) -> list[TimedStream]:
    async with RunningStreams(nodes, each=STREAMS // len(nodes)) as streams:
        await asyncio.to_thread(harm)
        return await streams.end()


def _measure_join(directory: Path) -> list[Result]:
    with starting(directory) as starter:
        starter.start_many(1).start_many(2)
        residents = tuple(starter.members.nodes)
        starter.members.settle()
        times: list[float] = []
        for _ in range(JOINS):
            started = time.monotonic()
            guest = starter.launch()
            guest.await_up(ready=False)
            while not all(guest.id in seen for seen in starter.members.ask(Member.online, of=[*residents, guest])):
                time.sleep(0.01)
            times.append(time.monotonic() - started)
            guest.stop()
            starter.members.wait_online(residents)
    note = "from the start of its process; " + ", ".join(f"{seconds:.2f}" for seconds in times)
    what = "a node that joins three is visible on all four"
    return [Result("cluster", what, statistics.median(times), "s", "at most", 3, note=note)]


def _measure_rest(directory: Path) -> list[Result]:
    with starting(directory) as starter:
        hub = starter.start()
        for _ in range(1, CROWD, 5):
            starter.start_many(5)
        members = starter.members
        members.settle(seconds=120)
        # What newcomers still have to measure and tell is no rest.
        _await_rest(hub)
        before, applied = read_usage(hub), hub.state()["applied"]
        psutil.cpu_percent()
        time.sleep(REST_SECONDS)
        used, events = read_usage(hub).since(before), hub.state()["applied"] - applied
        machine = psutil.cpu_percent()
    percent = 100 / REST_SECONDS
    note = f"node {used.node * percent:.1f}, server {used.broker * percent:.1f}; the whole machine {machine:.0f}%"
    what = f"{CROWD} nodes at rest"
    return [
        Result("cluster", f"{what}: CPU of the hub", (used.node + used.broker) * percent, "%", "at most", 5, note=note),
        Result("cluster", f"{what}: events a second", events / REST_SECONDS, "", "at most", 0.1),
    ]


def _await_rest(hub: Member) -> None:
    """Wait until ten seconds bring no event; two minutes at most."""
    for _ in range(12):
        applied = hub.state()["applied"]
        time.sleep(10)
        if hub.state()["applied"] == applied:
            return
