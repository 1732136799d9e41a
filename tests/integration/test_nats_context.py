"""What `exo nats context` writes opens the broker for reading, for a client that knows nothing of exo."""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from exo.broker import hub as hub_module
from exo.broker.context import make_address, write_address
from exo.broker.credentials import Credentials
from exo.broker.hub import Hub, HubSettings
from exo.ops import cli
from exo.ops.paths import find_paths
from exo.streams.ids import NodeId
from support.nats import DEADLINE, wait_until

CREDENTIALS = Credentials("lab", "a secret")


@asynccontextmanager
async def running(data: Path, *, tls: bool) -> AsyncGenerator[Hub]:
    """A hub that has told this data directory how to read it."""
    store = find_paths(data).store
    files = CREDENTIALS.write_tls(store) if tls else None
    settings = HubSettings(directory=store / "server", name="test", tls=files)
    async with Hub(settings, credentials=CREDENTIALS) as hub:
        write_address(store, make_address(hub.url, credentials=CREDENTIALS, directory=store, tls=files))
        yield hub


async def write_context(data: Path) -> tuple[Path, dict[str, Any]]:
    """Run the command; gives the file that the stock CLI reads, and what is in it."""
    assert await asyncio.to_thread(cli.run, ["nats", "context", "--data-dir", str(data)]) == 0
    file = next(Path.home().rglob("nats/context/exo.json"))
    return file, json.loads(file.read_bytes())


@asynccontextmanager
async def connected(context: dict[str, Any], errors: list[Exception]) -> AsyncGenerator[Client]:
    """Connect as the stock CLI does: from the context alone."""

    async def note(error: Exception) -> None:
        errors.append(error)

    client = await nats.connect(
        context["url"],
        nkeys_seed=context["nkey"],
        inbox_prefix=context["inbox_prefix"].encode(),
        tls=make_tls(context) if "ca" in context else None,
        tls_handshake_first=bool(context.get("tls_first")),
        error_cb=note,
        allow_reconnect=False,
    )
    try:
        yield client
    finally:
        await client.close()


def make_tls(context: dict[str, Any]) -> ssl.SSLContext:
    """Check the host as the stock CLI does, and the chain as strictly as there is."""
    tls = ssl.create_default_context(cafile=context["ca"])
    assert tls.check_hostname
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    tls.load_cert_chain(context["cert"], context["key"])
    return tls


@pytest.mark.parametrize("tls", [False, True])
async def test_a_stock_client_reads_what_passes(tmp_path: Path, *, tls: bool) -> None:
    async with running(tmp_path, tls=tls) as hub:
        file, context = await write_context(tmp_path)
        assert file.stat().st_mode & 0o777 == 0o600
        assert Path(context["nkey"]).stat().st_mode & 0o777 == 0o600
        assert CREDENTIALS.seed("reader") not in file.read_text()
        async with connected(context, []) as client:
            subscription = await client.subscribe("exo.>")
            await client.flush()
            await hub.bus.publish("exo.telemetry.n1.memory", b"{}")
            message = await subscription.next_msg(timeout=DEADLINE)
            assert (message.subject, message.data) == ("exo.telemetry.n1.memory", b"{}")
            streams = await client.jetstream().streams_info()
            assert "EXO_EVENTS" in {info.config.name for info in streams}


async def test_a_stock_client_changes_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, tls=False) as hub:
        errors: list[Exception] = []
        _, context = await write_context(tmp_path)
        async with connected(context, errors) as client:
            await client.publish("exo.commands.instance.place", b"{}")
            await client.publish("$JS.API.STREAM.DELETE.EXO_EVENTS", b"")
            await client.flush()
            await wait_until(lambda: len(errors) == 2, what="both refusals are told")
        assert sorted("permissions violation" in str(error).lower() for error in errors) == [True, True]
        assert (await hub.bus.stream_info("EXO_COMMANDS")).messages == 0
        assert (await hub.bus.stream_info("EXO_EVENTS")).name == "EXO_EVENTS"


async def show_hosts(context: dict[str, Any]) -> set[str]:
    """Give the addresses in the certificate that the server shows now."""
    port = context["url"].rpartition(":")[2]
    _, writer = await asyncio.open_connection("127.0.0.1", int(port), ssl=make_tls(context))
    try:
        shown = writer.get_extra_info("peercert")
        return {value for _, value in shown["subjectAltName"]}
    finally:
        writer.close()


async def test_the_certificate_follows_the_addresses_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, tls=True) as hub:
        _, context = await write_context(tmp_path)
        assert {"localhost", "127.0.0.1"} <= await show_hosts(context)
        monkeypatch.setattr(hub_module, "list_hosts", lambda: ("127.0.0.1", "10.9.9.9"))
        await hub.admit((NodeId("another"),))
        assert await show_hosts(context) == {"127.0.0.1", "10.9.9.9"}


async def test_a_host_that_the_certificate_does_not_name_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path, tls=True):
        _, context = await write_context(tmp_path)
        port = context["url"].rpartition(":")[2]
        with pytest.raises(ssl.SSLCertVerificationError, match="IP address mismatch"):
            await asyncio.open_connection("127.0.0.1", int(port), ssl=make_tls(context), server_hostname="192.0.2.1")
