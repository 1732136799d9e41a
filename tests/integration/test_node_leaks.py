"""Two hundred clients that vanish, and everything is back where it was."""

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil

from support.chat import body_of, stream_chat
from support.node import NodeProcess, running_node, wait_for

CLIENTS = 200
WORDS = " ".join(f"word{number}" for number in range(400))


def counts(node: NodeProcess) -> dict[str, float]:
    """Count open things from outside: the node's metrics, the broker's own monitor, the runner's slots."""
    lines = httpx2.get(f"{node.url}/metrics", timeout=10).raise_for_status().text.splitlines()
    metrics = {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("exo_relays_open")}
    monitor = json.loads((node.data / "nats" / "address.json").read_bytes())["monitor_url"]
    streams = httpx2.get(f"{monitor}/jsz?streams=1&consumers=1", timeout=10).raise_for_status().json()
    throughput = node.state()["telemetry"][node.state()["master"]]["throughput"]["gauge"]
    return metrics | {
        "subscriptions": httpx2.get(f"{monitor}/varz", timeout=10).raise_for_status().json()["subscriptions"],
        "consumers": streams["consumers"],
        "slots": throughput["active_tasks"],
        "tasks": len(node.state()["tasks"]),
    }


def is_idle(node: NodeProcess) -> bool:
    now = counts(node)
    return now["tasks"] == now["slots"] == 0


async def abort_one(http: httpx2.AsyncClient, node: NodeProcess, chance: random.Random) -> str:
    """Hang up before the first byte, in the middle, or by a time-out at a random moment; a few stay to the end.

    Gives the task when the client got far enough to know it, and left.
    """
    if chance.random() < 0.1:
        assert (await stream_chat(http, node.url, body_of("[[say:to the end]]"))).text == "to the end"
        return ""
    body = body_of(f"[[say:{WORDS}]]")
    if chance.random() < 0.5:
        left = await stream_chat(http, node.url, body, stop_after=chance.randint(1, 40))
        return left.frames[0]["id"].removeprefix("chatcmpl-")
    with suppress(TimeoutError):
        async with asyncio.timeout(chance.uniform(0.0, 0.5)):
            await stream_chat(http, node.url, body)
    return ""


async def test_two_hundred_aborted_streams_leave_nothing_behind(tmp_path: Path) -> None:
    chance = random.Random(20)
    with running_node(tmp_path / "data", env={"EXO_SCRIPTED": "tokens_per_second=100"}) as node:
        node.place()
        limits = httpx2.Limits(max_connections=40)
        async with httpx2.AsyncClient(timeout=60, limits=limits) as http:
            await asyncio.gather(*(abort_one(http, node, chance) for _ in range(20)))
            # The gauge comes once a second: it may still show the slots of requests that have ended.
            wait_for(lambda: is_idle(node), seconds=20, what="an idle node", node=node)
            before, resident = counts(node), psutil.Process(node.pid).memory_info().rss
            left = await asyncio.gather(*(abort_one(http, node, chance) for _ in range(CLIENTS)))
        wait_for(lambda: not node.state()["tasks"], seconds=30, what="the end of all tasks", node=node)
        ended = {key: task for page in node.state()["ended_tasks"]["pages"] for key, task in page.items()}
        assert {ended[task]["outcome"] for task in left if task} == {"cancelled"}
        wait_for(lambda: counts(node) == before, seconds=15, what=f"counts of {before}", node=node)
        assert psutil.Process(node.pid).memory_info().rss - resident < 60 * 1024 * 1024
        async with httpx2.AsyncClient(timeout=60) as http:
            answer = await stream_chat(http, node.url, body_of("[[say:still here]]"))
        assert answer.text == "still here"
