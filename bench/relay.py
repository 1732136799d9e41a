"""The way of a token from the runner's pipe to the client, with an engine that costs nothing to wait for.

The clients run in this process, which is not counted; the node, its broker and its runner are.
"""

import asyncio
import json
import time
from dataclasses import dataclass, field

import httpx2
import uvloop

from bench.processes import measured_node, read_usage
from bench.target import Result, percentile
from support.chat import Stream, body_of, stream_chat
from support.node import NodeProcess

END_OF_BODY = b"\r\n0\r\n\r\n"
TOKENS = 300
WORDS = " ".join(f"w{number}" for number in range(TOKENS))


@dataclass
class Load:
    """One offered load: `streams` at once, `rate` tokens a second each, `limit` us of CPU a token."""

    streams: int
    rate: float
    limit: float = 0
    records: list[Stream] = field(default_factory=list)


def run() -> list[Result]:
    """Measure first tokens, CPU per token at two rates, and 500 streams at once."""
    results = uvloop.run(_measure_first_token())
    for load in (Load(20, 50, 400), Load(100, 50, 120)):
        results += asyncio.run(_measure_cpu(load))
    return results + asyncio.run(_measure_many())


def _script(rate: float, *, batch: int) -> dict[str, str]:
    return {"EXO_SCRIPTED": f"tokens_per_second={rate}", "EXO_MAX_CONCURRENT_REQUESTS": str(batch)}


def _client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=120, limits=httpx2.Limits(max_connections=None))


async def _measure_first_token() -> list[Result]:
    with measured_node(env=_script(0, batch=16)) as node:
        node.place()
        times = (await _ask_in_turn(node, 320))[20:]
    return [
        Result("relay", "time to first token beside the engine, p50", percentile(times, 0.5), "ms", "at most", 5),
        Result("relay", "time to first token beside the engine, p99", percentile(times, 0.99), "ms", "at most", 20),
    ]


async def _ask_in_turn(node: NodeProcess, count: int) -> list[float]:
    """Give the milliseconds to the first text of each answer, over a bare connection: no client's work counts."""
    address = node.url.removeprefix("http://")
    host, _, port = address.partition(":")
    body = json.dumps(body_of("[[say:hello]]")).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nContent-Length: {len(body)}\r\n\r\n"
    reader, writer = await asyncio.open_connection(host, int(port))
    times: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        writer.write(head.encode() + body)
        await reader.readuntil(b'"content":"h')
        times.append((time.perf_counter() - started) * 1000)
        await reader.readuntil(END_OF_BODY)
        await asyncio.sleep(0.01)
    writer.close()
    return times


async def _run_load(node: NodeProcess, load: Load) -> float:
    """Run all streams to their ends, give the seconds it took."""
    async with _client() as http:
        started = time.perf_counter()
        load.records = await asyncio.gather(
            *(stream_chat(http, node.url, body_of(f"[[say:{WORDS}]]")) for _ in range(load.streams))
        )
        return time.perf_counter() - started


def _gaps(load: Load) -> int:
    return sum(record.text != WORDS or record.finishes != ["stop"] for record in load.records)


async def _measure_cpu(load: Load) -> list[Result]:
    with measured_node(env=_script(load.rate, batch=load.streams)) as node:
        node.place()
        await _run_load(node, Load(load.streams, load.rate))
        before = read_usage(node)
        elapsed = await _run_load(node, load)
        used = read_usage(node).since(before)
    tokens = load.streams * TOKENS
    micro = 1e6 / tokens
    offered = load.streams * load.rate
    note = f"node {used.node * micro:.0f}, server {used.broker * micro:.0f}; engine and pipe {used.runner * micro:.0f}"
    return [
        Result(
            "relay",
            f"CPU per token at {offered:.0f} tokens/s offered, node + server",
            (used.node + used.broker) * micro,
            "us",
            "at most",
            load.limit,
            note=f"{note} us; {tokens / elapsed:.0f} tokens/s reached",
        ),
        Result("relay", f"broken streams at {offered:.0f} tokens/s", _gaps(load), "", "at most", 0),
    ]


async def _measure_many() -> list[Result]:
    load = Load(500, 4)
    with measured_node(env=_script(load.rate, batch=512)) as node:
        node.place()
        elapsed = await _run_load(node, load)
    note = f"{load.streams * TOKENS / elapsed:.0f} tokens/s"
    return [Result("relay", "streams with a gap among 500 at once", _gaps(load), "", "at most", 0, note=note)]
