"""`exo nats`: a little inspector of this machine's message broker, and the door for the stock `nats` CLI.

The only commands beside `exo doctor` that do not speak HTTP: they work while the API does not.
"""

import asyncio
import os
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from exo.ops.cli.options import DataDir
from exo.ops.errors import CommandError, NoNodeError, UsageError
from exo.ops.layers import load_paths
from exo.ops.terminal import paint, print_table, say, show_bytes, tell

if TYPE_CHECKING:
    from exo.broker.bus import Delivery, StreamInfo
    from exo.broker.context import Address
    from exo.broker.monitor import JetStreamReport, ServerReport
    from exo.broker.nats_bus import NatsBus

T = TypeVar("T")

_LONGEST = 400


def info(data_dir: DataDir = None) -> None:
    """Show the server: address, version, connections, and what JetStream stores."""
    address = _find_broker(data_dir)
    if not address.monitor_url:
        # Its figures are told on loopback only, as everybody may read them there.
        print_table(("WHAT", "VALUE"), [["address", address.url]])
        tell("The hub is on another machine; `exo nats info` there shows more, `exo status` names it.")
        return
    server, jetstream = _run(_read_monitor(address), address)
    rows = [
        ["address", address.url],
        ["monitoring", address.monitor_url],
        ["process", str(address.pid)],
        ["version", server.version],
        ["uptime", server.uptime],
        ["memory", show_bytes(server.mem)],
        ["connections", str(server.connections)],
        ["subscriptions", str(server.subscriptions)],
        ["slow consumers", str(server.slow_consumers)],
        ["received", f"{server.in_msgs} messages, {show_bytes(server.in_bytes)}"],
        ["sent", f"{server.out_msgs} messages, {show_bytes(server.out_bytes)}"],
        ["streams", f"{jetstream.streams}, with {jetstream.messages} messages"],
        ["on disk", f"{show_bytes(jetstream.storage)} of {show_bytes(jetstream.config.max_storage)}"],
        ["in memory", f"{show_bytes(jetstream.memory)} of {show_bytes(jetstream.config.max_memory)}"],
    ]
    print_table(("WHAT", "VALUE"), rows)


def streams(data_dir: DataDir = None) -> None:
    """List the streams: messages, size and sequences."""
    address = _find_broker(data_dir)
    infos = _run(_list_streams(address), address)
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
    words = subject.split(".")
    if any(not word or word.split() != [word] for word in words) or ">" in words[:-1]:
        raise UsageError(f"{subject!r} is no subject", remedy="give words with dots between, as exo.events.>")
    address = _find_broker(data_dir)
    _run(_listen(address, subject, count), address)


def context(data_dir: DataDir = None) -> None:
    """Write a read-only context for the stock `nats` CLI, which then works as `nats --context exo ...`."""
    from exo.broker.context import write_cli_context

    file = _find_context_file()
    write_cli_context(file, _find_broker(data_dir))
    say(str(file))
    tell("Now `nats --context exo stream ls` shows the streams, and `nats --context exo sub 'exo.>'` what passes.")
    tell("It can read everything, prompts and answers too, and change nothing; write it again when the hub has moved.")


def _find_broker(data_dir: Path | None) -> "Address":
    # The broker's client takes a second to load, which `exo --help` must not wait for.
    from exo.broker.context import read_address

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


def _run(work: Coroutine[Any, Any, T], address: "Address") -> T:
    from exo.broker.errors import BrokerError

    try:
        return asyncio.run(work)
    except (BrokerError, OSError) as error:
        raise CommandError(f"the message broker at {address.url}: {error}", remedy="ask `exo doctor`") from error


async def _read_monitor(address: "Address") -> "tuple[ServerReport, JetStreamReport]":
    from exo.broker.monitor import Monitor

    monitor = Monitor(address.monitor_url)
    return await monitor.server(), await monitor.jetstream()


async def _list_streams(address: "Address") -> "list[StreamInfo]":
    async with _make_bus(address) as bus:
        return await bus.stream_infos()


async def _listen(address: "Address", subject: str, count: int) -> None:
    from exo.broker.monitor import tap

    async with _make_bus(address) as bus:
        tell(f"listening to {subject}; Ctrl-C ends")
        shown = 0
        async for delivery in tap(bus, subject):
            _show(delivery)
            shown += 1
            if shown == count:
                return


def _make_bus(address: "Address") -> "NatsBus":
    from exo.broker.nats_bus import NatsBus

    return NatsBus(address.to_settings("exo-cli"))


def _show(delivery: "Delivery") -> None:
    text = delivery.payload.decode(errors="replace").replace("\n", " ")
    if not sys.stdout.isatty():
        say(f"{delivery.subject}\t{text}")
        return
    moment = time.strftime("%H:%M:%S")
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
    say(f"{paint(moment, 'dim')} {paint(delivery.subject, 'bold')} {cut}")
