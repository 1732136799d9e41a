"""`exo keys` and `exo drain` against a real API: what a person types, and what comes of it."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from exo.ops import cli
from exo.ops.client import NodeClient
from exo.ops.draining import begin_drain, undo_drain, wait_until_empty
from support.fake_cluster import NODE, FakeCluster, always, say
from support.gateway import BODY, Client, until

Run = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def run(client: Client, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `exo` with these words in a thread of its own; gives the exit code, stdout and stderr."""

    async def run_words(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = await asyncio.to_thread(cli.run, [*words, "--url", str(client.base_url)])
        printed = capsys.readouterr()
        return code, "".join(line for line in printed.out.splitlines(True) if "[debug" not in line), printed.err

    return run_words


async def test_a_key_is_made_listed_and_revoked(run: Run, client: Client) -> None:
    code, key, told = await run("keys", "add", "laptop", "--scope", "infer", "--scope", "read")
    assert code == 0
    assert key.strip().startswith("exo-")
    assert "not shown again" in told
    assert (await client.get("/state", headers={"x-api-key": key.strip()})).status_code == 200
    _, listed, _ = await run("keys", "list", "--json")
    (entry,) = json.loads(listed)
    assert (entry["name"], entry["scopes"]) == ("laptop", ["infer", "read"])
    assert key.strip() not in listed
    code, said, _ = await run("keys", "revoke", entry["id"])
    assert (code, said.strip()) == (0, f"{entry['id']} is revoked")
    assert (await client.get("/state", headers={"x-api-key": key.strip()})).status_code == 401
    code, _, told = await run("keys", "revoke", entry["id"])
    assert code == 1
    assert "key_not_found" in told


async def test_json_of_a_new_key_holds_all_of_it(run: Run) -> None:
    _, made, _ = await run("keys", "add", "ci", "--json")
    assert set(json.loads(made)) == {"id", "name", "scopes", "created", "key"}


async def test_an_unknown_scope_is_refused_with_those_there_are(run: Run) -> None:
    code, _, told = await run("keys", "add", "x", "--scope", "root")
    assert code == 2
    assert "'root' is no scope; choose of infer, read, admin" in told


@pytest.mark.parametrize(("name", "why"), [("", "is empty"), (" ", "is empty"), ("x" * 65, "65"), ("a\nb", "printed")])
async def test_a_name_that_no_list_could_show_is_refused(run: Run, client: Client, name: str, why: str) -> None:
    code, _, told = await run("keys", "add", name)
    assert code == 2
    assert why in told
    refused = await client.post("/v1/keys", json={"name": name})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "name"


async def test_the_api_names_the_scopes_that_there_are(client: Client) -> None:
    refused = await client.post("/v1/keys", json={"name": "x", "scopes": ["infer", "root"]})
    assert refused.status_code == 400
    assert "a scope is one of infer, read, admin" in refused.json()["error"]["message"]


async def test_a_node_is_drained_by_name_and_taken_back(run: Run, cluster: FakeCluster, client: Client) -> None:
    code, said, told = await run("drain", "test")
    assert (code, said.strip()) == (0, "test is drained: it works on nothing and gets nothing new")
    assert "no other node can run models" in told
    assert cluster.states.state.nodes[NODE].draining
    assert (await client.get("/state/nodes/node-1/draining")).json() is True
    code, _, _ = await run("drain", NODE, "--undo")
    assert code == 0
    assert not cluster.states.state.nodes[NODE].draining
    code, _, told = await run("drain", "nobody")
    assert code == 1
    assert "There are: test" in told
    for odd in ("", "..", "a\tb"):
        code, _, told = await run("drain", odd)
        assert (code, "is not the name or id of a node" in told) == (2, True)


async def test_a_node_is_found_by_the_beginning_of_its_id(run: Run, cluster: FakeCluster) -> None:
    code, _, told = await run("drain", NODE[:4])
    assert (code, cluster.states.state.nodes[NODE].draining) == (0, True), told


async def test_draining_waits_for_what_is_at_work(cluster: FakeCluster, client: Client) -> None:
    gate = asyncio.Event()
    cluster.script = always([gate, *say("late")])
    asking = asyncio.create_task(client.post("/v1/chat/completions", json=BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    shown: list[str] = []
    async with NodeClient(str(client.base_url)) as node:
        drained = await begin_drain(node, NODE)
        assert (drained.draining, drained.tasks_left) == (True, 1)
        assert await wait_until_empty(node, drained, show=shown.append, grace=0.1) == 1
        waiting = asyncio.create_task(wait_until_empty(node, drained, show=shown.append))
        gate.set()
        assert await waiting == 0
        assert (await undo_drain(node, "test")).draining is False
    assert shown[0] == "test: 1 request left"
    assert (await asking).status_code == 200


async def test_waiting_ends_when_somebody_takes_the_node_back(cluster: FakeCluster, client: Client) -> None:
    cluster.script = always([asyncio.Event()])
    asking = asyncio.create_task(client.post("/v1/chat/completions", json=BODY))
    await until(lambda: bool(cluster.states.state.tasks))
    async with NodeClient(str(client.base_url)) as node:
        drained = await begin_drain(node, NODE)
        await undo_drain(node, NODE)
        assert await wait_until_empty(node, drained, show=str) == 1
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
