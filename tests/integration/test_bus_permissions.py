"""Each role tries what it must not do, against the real server, and is told so at once.

Seen to fail with its mechanism switched off: with `permit` giving None for every role nothing is refused.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from exo.broker.blobs import Blobs
from exo.broker.credentials import Credentials
from exo.broker.errors import BusUnavailableError, NotFoundError, PermissionDeniedError
from exo.broker.hub import Hub, HubSettings
from exo.broker.jetstream import call
from exo.broker.nats_bus import NatsBus
from exo.broker.permissions import MASTER, READER, node_role
from exo.streams import subjects
from exo.streams.envelope import EXPECTED_SEQUENCE
from exo.streams.ids import NodeId
from exo.streams.layout import COMMANDS, EVENTS, LEASE, NODES, REQUESTS, SNAPSHOT, TOKENS
from support.nats import CREDENTIALS, kill, wait_connection, wait_until

ONE, TWO = NodeId("n1"), NodeId("n2")
AT_ONCE = 2.0
"""Seconds; a refusal that is not recognised runs into the bus's time-out of five."""


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    settings = HubSettings(directory=tmp_path / "nats", name="test", nodes=(ONE,))
    async with Hub(settings, credentials=CREDENTIALS) as hub:
        yield hub


@asynccontextmanager
async def bus_of(hub: Hub, role: str) -> AsyncGenerator[NatsBus]:
    async with NatsBus(hub.connection_settings(role, name="test")) as bus:
        yield bus


class Forbidden:
    """Things that somebody tries; each must be refused, and quickly."""

    def __init__(self, bus: NatsBus) -> None:
        self._bus = bus

    async def append(self, *forbidden: str) -> None:
        for subject in forbidden:
            async with asyncio.timeout(AT_ONCE):
                with pytest.raises(PermissionDeniedError, match=re.escape(subject.lower())):
                    await self._bus.append(subject, b"{}")

    async def call(self, *verbs: str) -> None:
        for verb in verbs:
            async with asyncio.timeout(AT_ONCE):
                with pytest.raises(PermissionDeniedError, match=re.escape(verb.lower())):
                    await call(self._bus.connection, verb, {}, timeout=5)

    async def hear(self, *forbidden: str) -> None:
        for subject in forbidden:
            async with asyncio.timeout(AT_ONCE):
                with pytest.raises(PermissionDeniedError, match=re.escape(subject.lower())):
                    await self._bus.subscribe(subject, lambda _: None)


async def test_a_node_speaks_for_itself_only(hub: Hub) -> None:
    async with bus_of(hub, node_role(ONE)) as bus:
        forbidden = Forbidden(bus)
        await forbidden.append(
            subjects.node_event(TWO, "joined"),
            subjects.master_event("instance", "i1", "placed"),
            subjects.EPOCH,
            f"exo.tokens.{TWO}.t1",
            f"exo.telemetry.{TWO}.memory",
            f"$KV.{LEASE.name}.master",
            f"$KV.{NODES.name}.{TWO}",
            f"$KV.{SNAPSHOT.name}.state",
            "exo.poison.exo-events",
        )
        await forbidden.call(
            f"STREAM.DELETE.{EVENTS.name}",
            f"STREAM.PURGE.{EVENTS.name}",
            f"STREAM.UPDATE.{EVENTS.name}",
            "STREAM.CREATE.MINE",
            f"CONSUMER.CREATE.{COMMANDS.name}.master",
        )
        await forbidden.hear(f"exo.control.{TWO}.>", "_INBOX.master.>", "_INBOX.>", "exo.control.*.import-model")


async def test_a_node_may_do_all_of_its_work(hub: Hub) -> None:
    async with bus_of(hub, node_role(ONE)) as bus, bus_of(hub, MASTER) as master:
        sequence = (await bus.append(subjects.node_event(ONE, "joined"), b"{}")).sequence
        messages = bus.follow(EVENTS.name, after=sequence - 1)
        assert (await anext(messages)).sequence == sequence
        await messages.aclose()
        assert (await bus.stream_info(EVENTS.name)).consumers == 0
        await bus.append(subjects.command("task", "submit"), b"{}")
        await bus.append("exo.requests.t1", b"body")
        assert await bus.get_last(REQUESTS.name, "exo.requests.t1") is not None
        await bus.purge(REQUESTS.name, subject="exo.requests.t1")
        await bus.append("exo.responses.r1", b"answer")
        heard: list[bytes] = []
        await bus.subscribe("exo.tokens.*.t1", lambda delivery: heard.append(delivery.payload))
        await bus.publish(f"exo.tokens.{ONE}.t1", b"x")
        await wait_until(lambda: heard == [b"x"], what="the token")
        await bus.put(NODES.name, ONE, b"here", ttl=10)
        assert list(await bus.keys(NODES.name)) == [ONE]
        assert await bus.read(TOKENS.name, "exo.tokens.*.t1")
        blobs = Blobs(bus)
        await blobs.put("big", bytes(100))
        assert await blobs.get("big") == bytes(100)
        await blobs.delete("big")

        async def echo(payload: bytes) -> bytes:
            return payload

        await bus.respond(f"exo.control.{ONE}.echo", echo)
        assert await bus.request(f"exo.control.{ONE}.echo", b"hello", timeout=2) == b"hello"
        assert await master.get(NODES.name, ONE) is not None


async def test_a_node_answers_another(hub: Hub) -> None:
    await hub.admit((TWO,))
    async with bus_of(hub, node_role(ONE)) as one, bus_of(hub, node_role(TWO)) as two:

        async def echo(payload: bytes) -> bytes:
            return payload

        await one.respond(f"exo.control.{ONE}.echo", echo)
        assert await two.request(f"exo.control.{ONE}.echo", b"hello", timeout=2) == b"hello"


async def test_the_master_decides_and_states_no_facts(hub: Hub) -> None:
    async with bus_of(hub, MASTER) as bus, bus_of(hub, node_role(ONE)) as node:
        await bus.append(subjects.EPOCH, b"{}", headers={EXPECTED_SEQUENCE: "0"})
        await bus.append(subjects.master_event("instance", "i1", "placed"), b"{}")
        await node.append(subjects.command("task", "submit"), b"{}")
        work = bus.work(COMMANDS.name, name="master")
        item = await anext(work)
        await item.term("tried")
        await work.aclose()
        revision = await bus.put(LEASE.name, "master", b"me", revision=0, ttl=3)
        await bus.put(LEASE.name, "master", b"", revision=revision)
        await bus.put(SNAPSHOT.name, "state", b"{}")
        await bus.purge(EVENTS.name, below=2)
        forbidden = Forbidden(bus)
        await forbidden.append(subjects.node_event(ONE, "joined"), f"exo.tokens.{ONE}.t1", f"$KV.{NODES.name}.{ONE}")
        await forbidden.call(f"STREAM.DELETE.{EVENTS.name}", "STREAM.CREATE.MINE")


async def test_a_reader_hears_everything_and_changes_nothing(hub: Hub) -> None:
    async with bus_of(hub, READER) as bus, bus_of(hub, node_role(ONE)) as node:
        heard: list[str] = []
        await bus.subscribe("exo.>", lambda delivery: heard.append(delivery.subject))
        await node.append(subjects.node_event(ONE, "joined"), b"{}")
        await wait_until(lambda: heard == [subjects.node_event(ONE, "joined")], what="the fact")
        assert (await bus.stream_info(EVENTS.name)).messages == 1
        assert await bus.stream_infos()
        assert await bus.read(EVENTS.name, ">")
        with pytest.raises(NotFoundError):
            await bus.stream_info("NONE")
        forbidden = Forbidden(bus)
        await forbidden.append(
            subjects.node_event(ONE, "joined"),
            subjects.command("task", "submit"),
            f"exo.control.{ONE}.echo",
            f"$KV.{LEASE.name}.master",
        )
        await forbidden.call(
            f"STREAM.DELETE.{EVENTS.name}",
            f"STREAM.PURGE.{EVENTS.name}",
            # It could deliver onto a subject of somebody else.
            f"CONSUMER.CREATE.{EVENTS.name}.mine",
        )
        await forbidden.hear("_INBOX.master.>", "_INBOX.>", "$KV.exo_lease.>")


async def test_a_plain_publish_that_is_refused_changes_nothing(hub: Hub) -> None:
    async with bus_of(hub, READER) as bus, bus_of(hub, node_role(ONE)) as node:
        heard: list[bytes] = []
        await node.subscribe("exo.tokens.*.t1", lambda delivery: heard.append(delivery.payload))
        await bus.publish(f"exo.tokens.{ONE}.t1", b"forged")
        await bus.flush()
        await node.publish(f"exo.tokens.{ONE}.t1", b"true")
        await wait_until(lambda: bool(heard), what="the token")
        assert heard == [b"true"]


async def test_nobody_else_gets_in(hub: Hub) -> None:
    strangers = Credentials("test", "secret")
    for role, seed in (
        ("a node that is no member", CREDENTIALS.seed(node_role(TWO))),
        ("no key", ""),
        ("the hub of another cluster", strangers.seed("hub")),
    ):
        settings = hub.connection_settings(READER, name=role)
        with pytest.raises(PermissionDeniedError):
            await NatsBus(type(settings)(url=settings.url, name="x", seed=seed)).open()


async def test_an_admitted_node_gets_in_and_nobody_is_cut_off(hub: Hub) -> None:
    async with bus_of(hub, node_role(ONE)) as one:
        lost: list[bool] = []
        one.on_connection_change(lost.append)
        await hub.admit((TWO,))
        async with bus_of(hub, node_role(TWO)) as two:
            await two.append(subjects.node_event(TWO, "joined"), b"{}")
        await asyncio.gather(*(hub.admit((NodeId(f"m{number}"),)) for number in range(5)))
        async with bus_of(hub, node_role(NodeId("m4"))) as late:
            await late.flush()
        await one.flush()
        assert lost == []


async def test_a_node_that_has_departed_is_let_in_no_more(hub: Hub) -> None:
    async with bus_of(hub, node_role(ONE)) as one:
        await hub.admit((TWO,))
        # Nobody is asked to leave before there is a reason to write the configuration.
        await hub.admit((), departed=(TWO,))
        async with bus_of(hub, node_role(TWO)) as two:
            await hub.admit((NodeId("n3"),), departed=(TWO,))
            await wait_connection(two, connected=False)
        with pytest.raises(PermissionDeniedError):
            await NatsBus(hub.connection_settings(node_role(TWO), name="departed")).open()
        await hub.admit((TWO,))
        async with bus_of(hub, node_role(TWO)):
            await one.flush()


async def test_an_admitted_node_stays_admitted_when_the_server_comes_back(hub: Hub) -> None:
    await hub.admit((TWO,))
    async with bus_of(hub, node_role(TWO)) as two:
        kill(hub.server.pid)
        await wait_connection(two, connected=False)
        await wait_connection(two, connected=True)
        await two.append(subjects.node_event(TWO, "joined"), b"{}")


async def test_with_tls_nobody_gets_in_without_the_clusters_certificate(tmp_path: Path) -> None:
    tls = CREDENTIALS.write_tls(tmp_path / "tls")
    foreign = Credentials("others").write_tls(tmp_path / "foreign")
    settings = HubSettings(directory=tmp_path / "nats", name="test", nodes=(ONE,), tls=tls)
    async with Hub(settings, credentials=CREDENTIALS) as hub:
        async with bus_of(hub, node_role(ONE)) as bus:
            await bus.append(subjects.node_event(ONE, "joined"), b"{}")
        right = hub.connection_settings(node_role(ONE), name="test")
        for wrong in (None, foreign):
            settings_of_stranger = type(right)(
                url=right.url if wrong else right.url.replace("tls:", "nats:"),
                name="x",
                seed=right.seed,
                inbox=right.inbox,
                tls=wrong,
                open_timeout=1,
            )
            with pytest.raises(BusUnavailableError):
                await NatsBus(settings_of_stranger).open()
