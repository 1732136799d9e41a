"""Whoever does not speak the protocol of the cluster port is closed and counted, and keeps no member out."""

import asyncio
import ssl
from contextlib import suppress

import pytest

from exo.broker import cluster_port, cluster_stream, greeting
from exo.broker.addresses import parse_address
from exo.broker.certificates import make_certificate, trusting_context
from exo.broker.cluster_frames import PROTOCOL, Greeting, Introduction, Refused, Saying
from exo.broker.cluster_stream import dial
from exo.broker.name_lookups import NameLookups
from exo.broker.peers import Peers
from exo.streams.ids import BootId, NodeId
from support.nats import wait_until
from support.peers import (
    HOST,
    OF_TOMORROW,
    address_of,
    greeted_stream,
    make_hello,
    make_settings,
    running_peers,
    wait_counted,
    wait_met,
    wait_refused,
)

A, B = NodeId("a"), NodeId("b")


async def open_tls(peers: Peers) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, peers.port, ssl=trusting_context())


@pytest.mark.parametrize(
    ("sent", "kind"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "oversized"),
        (b"\0\0\0\x05hello", "garbage"),
        (b'\0\0\0\x12{"type":"burst!!"}', "garbage"),
        (b'\0\0\0\x13{"type":"greeting"}', "garbage"),
        (b"\0\0\0\0", "garbage"),
        (b"\0\2\0\0" + b"x" * 100, "oversized"),
        (b"\xff" * 64, "oversized"),
    ],
)
async def test_garbage_over_tls_is_closed_and_counted(sent: bytes, kind: str) -> None:
    async with running_peers(make_settings("a")) as a:
        reader, writer = await open_tls(a)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        await wait_counted(a, kind)
        async with running_peers(make_settings("b", bootstrap=(address_of(a),))):
            await wait_met(a, B)


async def test_garbage_instead_of_tls_is_closed_and_counted() -> None:
    async with running_peers(make_settings("a")) as a:
        reader, writer = await asyncio.open_connection(HOST, a.port)
        writer.write(b"SSH-2.0-hello\r\n" * 10)
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        await wait_counted(a, "garbage")


@pytest.mark.parametrize("speaks_tls", [False, True])
async def test_a_client_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch, *, speaks_tls: bool) -> None:
    for module in (cluster_stream, cluster_port):
        monkeypatch.setattr(module, "HANDSHAKE_TIMEOUT", 0.3, raising=False)
    monkeypatch.setattr("exo.broker.greeting.HANDSHAKE_TIMEOUT", 0.3)
    async with running_peers(make_settings("a")) as a:
        reader, writer = await asyncio.open_connection(HOST, a.port, ssl=trusting_context() if speaks_tls else None)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        await wait_counted(a, "silent")


async def test_a_flood_of_silent_connections_keeps_no_member_out() -> None:
    async with running_peers(make_settings("a")) as a:
        flood = [await asyncio.open_connection(HOST, a.port) for _ in range(3 * cluster_port.MOST_GUESTS)]
        try:
            await wait_counted(a, "flooded", times=2 * cluster_port.MOST_GUESTS)
            async with running_peers(make_settings("b", bootstrap=(address_of(a),))) as b:
                await wait_met(b, A)
            async with asyncio.timeout(cluster_stream.HANDSHAKE_TIMEOUT / 2):
                with suppress(ConnectionError):
                    assert await flood[0][0].read() == b"", "the first ones had to go"
        finally:
            for _, writer in flood:
                writer.close()


async def test_frames_of_a_newer_node_are_skipped_and_counted() -> None:
    async with running_peers(make_settings("a")) as a:
        settings = make_settings("b")
        async with greeted_stream(a, settings) as stream:
            await stream.send(Introduction(make_hello(settings)))
            for _ in range(3):
                stream.write(OF_TOMORROW)
            await stream.send(Saying(make_hello(settings)))
            await wait_met(a, B)
            assert a.report().counters["unknown_frames"] == 3


async def test_another_protocol_is_refused_with_what_to_do() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        dial(parse_address(address_of(a)), trusting_context(), lookups=NameLookups()) as stream,
    ):
        newer = Greeting(
            protocol=PROTOCOL + 1, cluster="home", node=B, boot=BootId("b1"), name="newer", version="9", nonce="1"
        )
        await stream.send(newer)
        assert isinstance(await stream.read(), Greeting)
        refused = await stream.read()
        assert isinstance(refused, Refused)
        assert refused.code == "version_incompatible"
        assert "same version" in refused.reason
        assert await wait_refused(a, "version_incompatible", by_us=True) == "newer"


async def test_an_id_that_would_widen_a_permission_is_refused() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        dial(parse_address(address_of(a)), trusting_context(), lookups=NameLookups()) as stream,
    ):
        evil = Greeting(
            protocol=PROTOCOL, cluster="home", node=NodeId("*"), boot=BootId("b"), name="evil", version="1", nonce="1"
        )
        await stream.send(evil)
        assert await wait_refused(a, "malformed", by_us=True) == "evil"


async def test_a_hello_of_somebody_else_ends_the_connection() -> None:
    async with running_peers(make_settings("a")) as a:
        settings = make_settings("b")
        async with greeted_stream(a, settings) as stream:
            await stream.send(Introduction(make_hello(settings)))
            await stream.send(Saying(make_hello(make_settings("c"))))
            await wait_counted(a, "garbage")
            assert a.known() == {}


async def test_a_proof_cannot_be_passed_on_by_somebody_in_the_middle() -> None:
    """A relay with its own certificate forwards all frames; the proofs cover the certificate."""
    async with running_peers(make_settings("a")) as a, running_peers(make_settings("c")) as certificate_of:
        context = certificate_of._port._context

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            inner_reader, inner_writer = await open_tls(a)
            with suppress(ConnectionError, ssl.SSLError):
                await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

        async with await asyncio.start_server(relay, HOST, 0, ssl=context) as middle:
            port = middle.sockets[0].getsockname()[1]
            async with running_peers(make_settings("b", bootstrap=(f"{HOST}:{port}",))) as b:
                assert await wait_refused(b, "secret_mismatch", by_us=True) == "the-a"
                assert a.known() == b.known() == {}


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def test_a_server_that_never_greets_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HANDSHAKE_TIMEOUT", 0.1)
    context = make_certificate(bytes(32), name="mute").server_context()

    async def keep_quiet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(keep_quiet, HOST, 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with running_peers(make_settings("a", bootstrap=(f"{HOST}:{port}",))) as a:
            await wait_until(lambda: bool(a.report().attempts[0].failures), what="the attempt ends")
            attempt = a.report().attempts[0]
        server.close()
    assert attempt.outcome == "timeout"
    assert attempt.detail.startswith("connected, but the greeting was not done")
