"""A TCP proxy with faults, run as a script by `proxy.py`: standard library only, one process per proxy.

Binds `--listen`, then, if told to, goes on in another network namespace through `--enter`: so it takes
connections in one and makes them in the other. Says its port, then takes one JSON object of `Faults` per
line of input and answers `ok` when it holds. Ends with its input.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass, replace

CHUNK = 64 * 1024


@dataclass(frozen=True)
class Faults:
    """What happens to each piece of data, both ways. Times in seconds."""

    delay: float = 0
    jitter: float = 0
    """Up to so much more delay, evenly drawn."""
    loss: float = 0
    """Share of pieces that are lost and sent again: TCP shows it as a pause of `stall`."""
    stall: float = 0.3
    cut: bool = False
    """Nothing passes and nothing is said about it, as with a pulled cable; it goes on where it stopped."""
    refuse: bool = False
    """New connections are reset at once."""
    resets: int = 0
    """Raised by one: every connection is reset now."""


class Proxy:
    """All connections of one port."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._faults = Faults()
        # The same bad luck in every run.
        self._chance = random.Random(1)
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    def apply(self, faults: Faults) -> None:
        """Behave like this from now on."""
        if faults.resets != self._faults.resets:
            for writer in tuple(self._writers):
                reset(writer)
        self._faults = faults
        if faults.cut:
            self._open.clear()
        else:
            self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side ends it."""
        if self._faults.refuse:
            reset(writer)
            return
        self._writers.add(writer)
        try:
            await self._open.wait()
            back, forth = await asyncio.open_connection(*self._target)
        except OSError:
            self._drop(writer)
            return
        self._writers.add(forth)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, forth))
                group.create_task(self._carry(back, writer))
        except* OSError:
            pass
        finally:
            self._drop(writer)
            self._drop(forth)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one direction; what is under way keeps its order and its own delay."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(maxsize=1024)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._deliver(under_way, writer))
            while True:
                data = await reader.read(CHUNK)
                await under_way.put((asyncio.get_running_loop().time() + self._draw_delay(), data))
                if not data:
                    return

    def _draw_delay(self) -> float:
        faults = self._faults
        lost = self._chance.random() < faults.loss
        return faults.delay + self._chance.uniform(0, faults.jitter) + (faults.stall if lost else 0)

    async def _deliver(self, under_way: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        while True:
            due, data = await under_way.get()
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            await self._open.wait()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            writer.write(data)
            await writer.drain()


def bind(listen: str) -> socket.socket:
    """Listen on `host:port`; port 0 takes any."""
    host, _, port = listen.rpartition(":")
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, int(port)))
    listener.listen(512)
    return listener


async def run(listener: socket.socket, proxy: Proxy) -> None:
    """Serve until the input ends."""
    server = await asyncio.start_server(proxy.serve, sock=listener)
    async with server:
        say(str(listener.getsockname()[1]))
        faults = Faults()
        while line := await asyncio.to_thread(sys.stdin.readline):
            faults = replace(faults, **json.loads(line))
            proxy.apply(faults)
            say("ok")
    # Connections die with the process; waiting for them would wait for their clients.
    os._exit(0)


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST: nobody may take it for an end in good order."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def say(line: str) -> None:
    """Answer the test."""
    with suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main() -> None:
    """Bind here, connect there."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--listener", type=int, help="a bound socket that was inherited")
    parser.add_argument("--to", required=True)
    parser.add_argument("enter", nargs="*", help="a command that runs another in the namespace to connect from")
    options = parser.parse_args()
    listener = socket.socket(fileno=options.listener) if options.listener is not None else bind(options.listen)
    if options.enter:
        listener.set_inheritable(True)
        again = [sys.executable, "-I", "-S", __file__, "--listener", str(listener.fileno()), "--to", options.to]
        os.execvp(options.enter[0], [*options.enter, *again])
    host, _, port = options.to.rpartition(":")

    async def start() -> None:
        await run(listener, Proxy((host, int(port))))

    asyncio.run(start())


if __name__ == "__main__":
    main()
