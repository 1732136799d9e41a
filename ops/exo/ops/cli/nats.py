"""`exo nats`: a little inspector of this machine's message broker, and the door for the stock `nats` CLI.

The only commands beside `exo doctor` that do not speak HTTP: they work while the API does not.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exo.broker.context import Address, read_address, write_cli_context
from exo.ops.cli.options import DataDir
from exo.ops.errors import CommandError, NoNodeError
from exo.ops.layers import load_paths
from exo.ops.terminal import paint, print_table, say, show_bytes, tell

if TYPE_CHECKING:
    from exo.broker.bus import Delivery, StreamInfo
    from exo.broker.nats_bus import NatsBus

_LONGEST = 400


def info(data_dir: DataDir = None) -> None:
    """Show the server: address, version, connections, and what JetStream stores."""
    address = _find_broker(data_dir)
    server, jetstream = asyncio.run(_read_monitor(address))
    rows = [
        ["address", address.url],
        ["monitoring", address.monitor_url],
        ["process", str(address.pid)],
        ["version", str(server["version"])],
        ["uptime", str(server["uptime"])],
        ["connections", str(server["connections"])],
        ["subscriptions", str(server["subscriptions"])],
        ["slow consumers", str(server["slow_consumers"])],
        ["received", f"{server['in_msgs']} messages, {show_bytes(server['in_bytes'])}"],
        ["sent", f"{server['out_msgs']} messages, {show_bytes(server['out_bytes'])}"],
        ["streams", str(jetstream["streams"])],
        ["on disk", f"{show_bytes(jetstream['storage'])} of {show_bytes(jetstream['config']['max_storage'])}"],
        ["in memory", f"{show_bytes(jetstream['memory'])} of {show_bytes(jetstream['config']['max_memory'])}"],
        ["JetStream errors", str(jetstream.get("api", {}).get("errors", 0))],
    ]
    print_table(("WHAT", "VALUE"), rows)


def streams(data_dir: DataDir = None) -> None:
    """List the streams: messages, size and sequences."""
    infos = asyncio.run(_list_streams(_find_broker(data_dir)))
    rows = [
        [one.name, str(one.messages), show_bytes(one.bytes), str(one.first_sequence), str(one.last_sequence)]
        for one in sorted(infos, key=lambda one: one.name)
    ]
    print_table(("STREAM", "MESSAGES", "SIZE", "FIRST", "LAST"), rows)


def sub(
    subject: Annotated[str, typer.Argument(help="What to listen to; `*` is one word, `>` all that follow.")] = "exo.>",
    count: Annotated[int, typer.Option(min=0, help="End after so many messages; 0 never ends.")] = 0,
    data_dir: DataDir = None,
) -> None:
    """Print messages as they pass, one per line: the subject, then the message."""
    asyncio.run(_listen(_find_broker(data_dir), subject, count))


def context(data_dir: DataDir = None) -> None:
    """Write a context for the stock `nats` CLI, which then works as `nats --context exo ...`."""
    file = _find_context_file()
    write_cli_context(file, _find_broker(data_dir))
    say(str(file))
    tell("Now `nats --context exo stream ls` shows the streams; the address is new at each start of the node.")


def _find_broker(data_dir: Path | None) -> Address:
    store = load_paths(data_dir).store
    address = read_address(store)
    if address is None:
        raise NoNodeError(f"no message broker runs on {store}", remedy="start a node with `exo up`")
    return address


def _find_context_file() -> Path:
    """Where the stock CLI looks, on every system."""
    root = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(root) if root else Path.home() / ".config"
    return home / "nats" / "context" / "exo.json"


async def _read_monitor(address: Address) -> tuple[dict[str, Any], dict[str, Any]]:
    from exo.ops.client import NodeClient

    async with NodeClient(address.monitor_url) as client:
        return await client.get("/varz", dict[str, Any]), await client.get("/jsz", dict[str, Any])


async def _list_streams(address: Address) -> "list[StreamInfo]":
    async with _open_bus(address) as bus:
        return await bus.stream_infos()


async def _listen(address: Address, subject: str, count: int) -> None:
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    async with _open_bus(address) as bus:
        await bus.subscribe(subject, arrived.put_nowait)
        await bus.flush()
        tell(f"listening to {subject}; Ctrl-C ends")
        shown = 0
        while count == 0 or shown < count:
            _show(await arrived.get())
            shown += 1


@asynccontextmanager
async def _open_bus(address: Address) -> "AsyncGenerator[NatsBus]":
    from exo.broker.errors import BrokerError
    from exo.broker.nats_bus import NatsBus
    from exo.broker.policy import ConnectionSettings

    try:
        seed = Path(address.seed_file).read_text().strip()
        async with NatsBus(ConnectionSettings(url=address.url, name="exo-cli", seed=seed)) as bus:
            yield bus
    except (BrokerError, OSError) as error:
        raise CommandError(f"the message broker at {address.url}: {error}", remedy="ask `exo doctor`") from error


def _show(delivery: "Delivery") -> None:
    text = delivery.payload.decode(errors="replace").replace("\n", " ")
    if not sys.stdout.isatty():
        say(f"{delivery.subject}\t{text}")
        return
    moment = time.strftime("%H:%M:%S")
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
    say(f"{paint(moment, 'dim')} {paint(delivery.subject, 'bold')} {cut}")
