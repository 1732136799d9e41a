"""Routes of placement answer what was asked, or say why not: nothing that was asked for is left out in silence."""

from typing import Any

import pytest

from exo.streams import events as e
from exo.streams.ids import NodeId
from support.fake_cluster import NODE, FakeCluster
from support.gateway import Client


async def test_an_instance_that_runs_already_stands_in_for_the_same_one(client: Client) -> None:
    body = {"model_id": "org/model", "only_if_absent": True, "sharding": "Pipeline", "min_nodes": 1}
    answer = await client.post("/place_instance", json=body)
    assert answer.json()["instance_id"] == "instance-1"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"context_length": 10**9}, "a context of"),
        ({"sharding": "Tensor"}, "as Pipeline"),
    ],
)
async def test_an_instance_that_runs_already_does_not_stand_in_for_another_one(
    client: Client, asked: dict[str, Any], words: str
) -> None:
    answer = await client.post("/place_instance", json={"model_id": "org/model", "only_if_absent": True, **asked})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "unplaceable"
    assert words in error["message"]
    assert "exo stop org/model" in error["message"]


async def test_more_nodes_than_there_are_is_said_to_be_that(client: Client, cluster: FakeCluster) -> None:
    body = {"model_id": "org/model", "only_if_absent": True, "min_nodes": 9}
    answer = await client.post("/place_instance", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("9 nodes are asked for, but only 1 that can run models")
    # With enough of them, what runs is on too few.
    facts = cluster.states.state.nodes[NODE].facts
    for node in ("node-b", "node-c"):
        await cluster.record(e.NodeJoined(node=NodeId(node), facts=facts))
    answer = await client.post("/place_instance", json={**body, "min_nodes": 2})
    assert "runs already on 1 of 2 nodes" in answer.json()["error"]["message"]


async def test_previews_say_which_node_would_be_left_out(client: Client) -> None:
    async def preview(*nodes: str) -> dict[str, Any]:
        answer = await client.get("/instance/previews", params={"model_id": "org/model", "node_ids": list(nodes)})
        return answer.json()["previews"][0]

    assert (await preview(NODE))["error"] is None
    refused = await preview(NODE, "elsewhere")
    assert (refused["sharding"], refused["instance_meta"]) == ("Pipeline", "MlxRing")
    assert (refused["instance"], refused["memory_delta_by_node"]) == (None, None)
    assert "elsewhere" in refused["error"]


@pytest.mark.parametrize("timeout", ["-1", "nan", "soon"])
async def test_no_wait_without_a_sensible_end(client: Client, timeout: str) -> None:
    answer = await client.get("/instance/await", params={"model_id": "org/model", "timeout_seconds": timeout})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "timeout_seconds"
