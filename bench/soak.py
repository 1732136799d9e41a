"""100,000 joins, leaves and tasks against a real nats-server with real follower processes: nothing grows.

One master writes as a master does - fenced, one decision at a time, with snapshots that cut the log - and
sixteen nodes write their facts. What each process holds is compared between a fifth of the way and its end.
"""

import asyncio
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import psutil
import uvloop

from bench.follower import Measure
from bench.target import Result
from exo.broker.bus import Bus
from exo.broker.hub import Hub
from exo.broker.permissions import node_role
from exo.services.clock import SystemClock
from exo.services.master.reign import Reign
from exo.services.projection import Projection
from exo.services.snapshots.service import EVERY, KEPT, Snapshots
from exo.streams.chunks import Usage
from exo.streams.codec import encode, hash_state
from exo.streams.envelope import headers_of_fact
from exo.streams.events import Envelope, Fact, NodeJoined, NodeLeft, TaskAssigned, TaskFinished, subject_of_event
from exo.streams.ids import BootId, CommandId, InstanceId, ModelId, NodeId, TaskId, new_session_id
from exo.streams.layout import EVENTS
from exo.streams.nodes import NodeFacts
from exo.streams.tasks import TaskRecord
from support.nats import running_hub

HAPPENINGS = 100_000
NODES = 16
TASKS = 8
"""Tasks of a node between its joining and its leaving."""
FOLLOWERS = 3
ROUNDS = HAPPENINGS // (NODES * (TASKS + 2))
LOOKS = 5
MEGABYTE = 1_000_000


@dataclass
class Look:
    """What everything costs at one moment."""

    followers: list[Measure]
    server_resident: int
    server_descriptors: int
    consumers: int
    log_messages: int
    log_bytes: int


def run() -> list[Result]:
    """Soak, then compare the first look with the last one."""
    with tempfile.TemporaryDirectory() as directory:
        return uvloop.run(_soak(Path(directory)))


async def _soak(directory: Path) -> list[Result]:
    async with running_hub(directory) as hub, _reigning(hub.bus) as reign, _following(hub) as followers:
        started = time.perf_counter()
        looks: list[Look] = []
        for number in range(1, ROUNDS + 1):
            await asyncio.gather(*(_live(hub.bus, reign, node=node, number=number) for node in range(NODES)))
            if number % (ROUNDS // LOOKS) == 0:
                looks.append(await _look(hub, followers))
        elapsed = time.perf_counter() - started
        events = reign.state.applied
        agreed = {(measure.applied, measure.state_hash) for measure in looks[-1].followers}
        agreed.add((events, hash_state(reign.state)))
    return _compare(looks[0], looks[-1], disagreeing=len(agreed) - 1, note=f"{events} events in {elapsed:.0f} s")


@asynccontextmanager
async def _reigning(bus: Bus) -> AsyncGenerator[Reign]:
    """Begin a session and rule it, with snapshots."""
    node, boot = NodeId("bench"), BootId("bench")
    projection = Projection(bus, node=node, boot=boot)
    await projection.inaugurate(bus, new_session_id())
    reign = Reign(bus, projection, clock=SystemClock(), node=node, boot=boot)
    folding = asyncio.create_task(projection.run())
    await projection.caught_up(timeout=30)
    await reign.begin()
    cutting = asyncio.create_task(Snapshots(bus, projection=projection).run(reign))
    try:
        yield reign
    finally:
        cutting.cancel()
        folding.cancel()
        await asyncio.gather(cutting, folding, return_exceptions=True)


@asynccontextmanager
async def _following(hub: Hub) -> AsyncGenerator[list[Process]]:
    """Start the followers, each with a connection of a node."""
    followers: list[Process] = []
    names = [NodeId(f"follower-{number}") for number in range(FOLLOWERS)]
    await hub.admit(names)
    for name in names:
        settings = hub.connection_settings(node_role(name), name=name)
        command = (sys.executable, "-m", "bench.follower")
        follower = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        _input_of(follower).write(msgspec.json.encode(settings) + b"\n")
        followers.append(follower)
    try:
        yield followers
    finally:
        for follower in followers:
            _input_of(follower).close()
            await asyncio.wait_for(follower.wait(), timeout=30)


async def _live(bus: Bus, reign: Reign, *, node: int, number: int) -> None:
    """One life of a node: it joins, works, and leaves."""
    name, boot = NodeId(f"node-{node}"), BootId(f"boot-{node}-{number}")
    await _append(bus, NodeJoined(node=name, facts=NodeFacts(name=name, version="bench")), boot=boot, key="joined")
    tasks = [TaskId(f"task-{node}-{number}-{count}") for count in range(TASKS)]
    for task in tasks:
        async with reign.turn():
            await reign.write(TaskAssigned(task=_task(task, node=name, boot=boot)), cause=CommandId(f"submit-{task}"))
    ends = (TaskFinished(node=name, task=task, last_index=2, reason="stop", usage=Usage()) for task in tasks)
    await asyncio.gather(*(_append(bus, end, boot=boot, key=f"finished-{end.task}") for end in ends))
    await _append(bus, NodeLeft(node=name), boot=boot, key="left")


def _task(task: TaskId, *, node: NodeId, boot: BootId) -> TaskRecord:
    return TaskRecord(
        id=task,
        command=CommandId(f"submit-{task}"),
        model=ModelId("exo/scripted"),
        instance=InstanceId("instance"),
        node=node,
        boot=boot,
        gateway=node,
        gateway_boot=boot,
    )


async def _append(bus: Bus, fact: Fact, *, boot: BootId, key: str) -> None:
    identifier = f"{boot}-{key}"
    envelope = Envelope(id=identifier, at=time.time_ns() // 1_000_000, actor=fact.node, boot=boot, event=fact)
    await bus.append(subject_of_event(fact), encode(envelope), headers=headers_of_fact(identifier))


async def _look(hub: Hub, followers: list[Process]) -> Look:
    """Measure at rest: the followers have folded everything."""
    info = await hub.bus.stream_info(EVENTS.name)
    measures = [await _ask(follower, info.last_sequence) for follower in followers]
    server = psutil.Process(hub.server.pid)
    return Look(
        followers=measures,
        server_resident=server.memory_info().rss,
        server_descriptors=server.num_fds(),
        consumers=sum(stream.consumers for stream in await hub.bus.stream_infos()),
        log_messages=info.messages,
        log_bytes=info.bytes,
    )


async def _ask(follower: Process, sequence: int) -> Measure:
    """Let a follower measure itself until it has come that far."""
    assert follower.stdout is not None
    while True:
        _input_of(follower).write(b"\n")
        measure = msgspec.json.decode(await follower.stdout.readline(), type=Measure)
        if measure.applied >= sequence:
            return measure


def _input_of(process: Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin


def _compare(first: Look, last: Look, *, disagreeing: int, note: str) -> list[Result]:
    pairs = list(zip(first.followers, last.followers, strict=True))
    grown = max(after.resident - before.resident for before, after in pairs) / MEGABYTE
    opened = max(after.descriptors - before.descriptors for before, after in pairs)
    server = (last.server_resident - first.server_resident) / MEGABYTE
    size = f"{last.log_bytes / MEGABYTE:.1f} MB, {first.log_messages} events after a fifth"

    def result(what: str, value: float, *, unit: str = "", most: float = 0, note: str = "") -> Result:
        return Result("soak", what, value, unit, "at most", most, note=note)

    resident = f"{last.followers[0].resident / MEGABYTE:.0f} MB"
    held = f"{last.server_resident / MEGABYTE:.0f} MB; ids of two minutes are kept to tell repeats"
    return [
        result("followers that came to another State", disagreeing, note=note),
        result("resident growth of a follower over 80,000", grown, unit="MB", most=8, note=resident),
        result("descriptors more in a follower", opened),
        result("resident growth of nats-server", server, unit="MB", most=64, note=held),
        result("descriptors more in nats-server", last.server_descriptors - first.server_descriptors),
        result("consumers more", last.consumers - first.consumers, note=f"{last.consumers} in all"),
        result("events in the log at the end", last.log_messages, most=EVERY + KEPT + 2000, note=size),
    ]
