"""kill -9 of nats-server under load: nothing acknowledged is lost, nothing comes twice, everything resumes.

Seen to fail with its mechanism switched off: a follower that resumes one message too late never
completes the first test. That message ids are needed is shown by defect 8 in
`test_broker_nats_py_defects.py`, where the server stores what the client has given up.
"""

import asyncio
from itertools import count
from pathlib import Path

from exo.broker.errors import BusUnavailableError
from exo.broker.hub import Hub
from exo.broker.nats_bus import NatsBus
from exo.streams import envelope
from support.nats import another_bus, kill, running_hub, wait_connection, wait_until

EVENT = "exo.events.node.n1.joined"


class Writer:
    """Appends numbered events, each again and again until it is acknowledged."""

    def __init__(self, bus: NatsBus) -> None:
        self.acknowledged: dict[int, int] = {}
        self.retries = 0
        self._bus = bus
        self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        for number in count():
            headers = envelope.headers_of_fact(f"event-{number}")
            while number not in self.acknowledged:
                try:
                    ack = await self._bus.append(EVENT, str(number).encode(), headers=headers)
                    self.acknowledged[number] = ack.sequence
                except BusUnavailableError:
                    self.retries += 1

    async def stop(self) -> int:
        """Gives how many events were acknowledged."""
        self._task.cancel()
        await asyncio.wait({self._task})
        return len(self.acknowledged)


async def kill_twice(hub: Hub, *, progress: "list[int] | dict[int, int]") -> None:
    for _ in range(2):
        before = len(progress)
        await wait_until(lambda: len(progress) > before + 50, what="progress")  # noqa: B023
        kill(hub.server.pid)
        await wait_connection(hub.bus, connected=False)
        await wait_connection(hub.bus, connected=True)
    before = len(progress)
    await wait_until(lambda: len(progress) > before + 50, what="progress after the last kill")


async def test_the_log_is_whole_and_the_follower_contiguous(tmp_path: Path) -> None:
    seen: list[int] = []
    async with running_hub(tmp_path) as hub, another_bus(hub) as reader:

        async def follow() -> None:
            async for message in reader.follow("EXO_EVENTS", after=0):
                seen.append(message.sequence)  # noqa: PERF401 - the test looks at it meanwhile

        following = asyncio.ensure_future(follow())
        writer = Writer(hub.bus)
        await kill_twice(hub, progress=writer.acknowledged)
        written = await writer.stop()
        await wait_until(lambda: len(seen) >= written, what="the follower has all")
        following.cancel()
        await asyncio.wait({following})
        stored = await hub.bus.read("EXO_EVENTS", ">", limit=written + 10)

    assert seen == list(range(1, len(seen) + 1))
    numbers = [int(message.payload) for message in stored]
    assert numbers[:written] == list(range(written))
    # The one that was on its way when the writer was stopped may be there too, but nothing twice.
    assert len(numbers) == len(set(numbers)) <= written + 1
    assert all(stored[sequence - 1].payload == str(number).encode() for number, sequence in writer.acknowledged.items())


async def test_publishing_never_raises_and_resumes(tmp_path: Path) -> None:
    heard: list[int] = []
    async with running_hub(tmp_path) as hub, another_bus(hub) as reader:
        await reader.subscribe("exo.tokens.*.t1", lambda delivery: heard.append(int(delivery.payload)))
        await reader.flush()
        published = count()

        async def publish() -> None:
            for number in published:
                await hub.bus.publish("exo.tokens.n1.t1", str(number).encode())
                await asyncio.sleep(0.001)

        publishing = asyncio.ensure_future(publish())
        await kill_twice(hub, progress=heard)
        assert not publishing.done()
        publishing.cancel()
        await asyncio.wait({publishing})
    # Some are lost with the server; those that came are in order and come once.
    assert heard == sorted(set(heard))


async def test_work_goes_on_and_is_done(tmp_path: Path) -> None:
    done: list[bytes] = []
    async with running_hub(tmp_path) as hub:

        async def work() -> None:
            async for item in hub.bus.work("EXO_COMMANDS", name="master", ack_wait=1):
                done.append(item.message.payload)
                try:
                    await item.ack()
                except BusUnavailableError:
                    continue

        working = asyncio.ensure_future(work())
        await hub.bus.append("exo.commands.task.submit", b"before")
        await wait_until(lambda: b"before" in done, what="work before the kill")
        kill(hub.server.pid)
        await wait_connection(hub.bus, connected=False)
        await wait_connection(hub.bus, connected=True)
        await hub.bus.append("exo.commands.task.submit", b"after")
        await wait_until(lambda: b"after" in done, what="work after the kill")

        async def empty() -> bool:
            return (await hub.bus.stream_info("EXO_COMMANDS")).messages == 0

        await wait_until(empty, what="all work is settled")
        working.cancel()
        await asyncio.wait({working})


async def test_subscriptions_and_responders_are_back(tmp_path: Path) -> None:
    async with running_hub(tmp_path) as hub, another_bus(hub) as other:

        async def echo(payload: bytes) -> bytes:
            return payload

        await hub.bus.respond("exo.control.n1.echo", echo)
        kill(hub.server.pid)
        await wait_connection(hub.bus, connected=False)
        await wait_connection(hub.bus, connected=True)
        await wait_connection(other, connected=True)
        assert await other.request("exo.control.n1.echo", b"x", timeout=5) == b"x"
