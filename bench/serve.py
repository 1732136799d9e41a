"""The starter model through exo against mlx-lm on the same weights: its loop, and its server.

Both sides run in turns inside one run, with the same BLAS, so that a noisy machine hits both.
"""

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from bench.processes import measured_node
from bench.target import Result
from support.node import wait_for

PROMPT = "Explain in three sentences why the sky is blue. Variant {number}."
TOKENS = 48
ROUNDS = 3
PEER = Path(__file__).parent / "mlx_peer.py"


def run() -> list[Result]:
    """Measure one stream against the loop, and 4, 8, 16 streams against the server."""
    with measured_node("--model", "starter", env={"EXO_MAX_CONCURRENT_REQUESTS": "32"}) as node:
        instances = wait_for(lambda: node.state()["instances"], seconds=300, what="the starter model", node=node)
        model = next(iter(instances.values()))["model"]["model_id"]
        node.await_ready(model, seconds=300)
        held = next(node.data.rglob("model.safetensors")).parent
        dense = node.data / "dense"
        subprocess.check_call([sys.executable, str(PEER), "densify", str(held), str(dense)])
        return _against_loop(node.url, model, dense) + _against_server(node.url, model, dense)


def _against_loop(url: str, model: str, directory: Path) -> list[Result]:
    ratios: list[float] = []
    ours: list[float] = []
    for _ in range(ROUNDS):
        loop = json.loads(subprocess.check_output([sys.executable, str(PEER), "loop", str(directory), str(TOKENS)]))
        asyncio.run(_offer(url, model, 1))
        ours.append(asyncio.run(_decode_speed(url, model)))
        ratios.append(ours[-1] / loop["tokens_per_second"])
    return [
        Result(
            "serve",
            "one stream, tokens/s as a share of mlx-lm in a loop",
            statistics.median(ratios),
            "",
            "at least",
            0.97,
            note=f"{statistics.median(ours):.1f} tokens/s; ratios {', '.join(f'{ratio:.2f}' for ratio in ratios)}",
        )
    ]


def _against_server(url: str, model: str, directory: Path) -> list[Result]:
    results: list[Result] = []
    with _mlx_server(directory) as peer:
        for streams in (4, 8, 16):
            pairs = [
                (asyncio.run(_offer(url, model, streams)), asyncio.run(_offer(peer, str(directory), streams)))
                for _ in range(ROUNDS)
            ]
            ratio = statistics.median(ours / theirs for ours, theirs in pairs)
            note = "; ".join(f"{ours:.0f} against {theirs:.0f} tokens/s" for ours, theirs in pairs)
            what = f"{streams} streams, tokens/s as a share of mlx_lm.server"
            results.append(Result("serve", what, ratio, "", "at least", 1, note=note))
    return results


def _body(model: str, number: int) -> dict[str, object]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": PROMPT.format(number=number)}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "stream": True,
    }


async def _offer(url: str, model: str, streams: int) -> float:
    """Give the tokens per second of `streams` requests at once, over the whole of their time."""
    async with httpx2.AsyncClient(timeout=300) as http:
        started = time.perf_counter()
        counts = await asyncio.gather(*(_stream(http, url, _body(model, number)) for number in range(streams)))
        return sum(len(times) for times in counts) / (time.perf_counter() - started)


async def _decode_speed(url: str, model: str) -> float:
    """Give the tokens per second between the first and the last token of one stream."""
    async with httpx2.AsyncClient(timeout=300) as http:
        times = await _stream(http, url, _body(model, 0))
    return (len(times) - 1) / (times[-1] - times[0])


async def _stream(http: httpx2.AsyncClient, url: str, body: dict[str, object]) -> list[float]:
    """Give the moment of each piece of text; none when the connection is dropped: mlx_lm.server's backlog is 5."""
    try:
        async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            response.raise_for_status()
            return [time.perf_counter() async for line in response.aiter_lines() if _holds_text(line)]
    except httpx2.TransportError as error:
        print(f"      {url} dropped a request: {error!r}", file=sys.stderr)
        return []


def _holds_text(line: str) -> bool:
    if not line.startswith("data: {"):
        return False
    return any(choice["delta"].get("content") for choice in json.loads(line[6:])["choices"])


@contextmanager
def _mlx_server(directory: Path) -> Generator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, str(PEER), "server", str(directory), str(port)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _answers(url), seconds=120, what="mlx_lm.server")
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health", timeout=2).status_code == 200
    except httpx2.TransportError:
        return False
