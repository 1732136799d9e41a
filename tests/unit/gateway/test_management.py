"""The management routes in upstream's shapes."""

import asyncio
import json
from time import monotonic
from typing import Any

from exo.gateway.listening import bind
from exo.gateway.serve import GRACE, serve
from exo.streams import subjects
from exo.streams.codec import decode_as, encode
from exo.streams.codes import Code
from exo.streams.commands import CreateInstance, PlaceInstance
from exo.streams.control import IMPORT_MODEL, REMOVE_MODEL, ImportModel, ModelReply, RemoveModel
from exo.streams.events import InstanceRemoved, ModelCardAdded, NodeTimedOut
from exo.streams.ids import InstanceId, ModelId
from exo.streams.layout import EVENTS
from exo.streams.telemetry import ImportGauge, Sample
from support.fake_cluster import NODE, OTHER, FakeCluster, card_of, instance_of
from support.gateway import BODY, Client, until

PIPELINE = {"sharding": "Pipeline", "instance_meta": "MlxRing"}


def events_of(text: str) -> list[Any]:
    """The data of all frames of a stream of server-sent events."""
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def test_facts_of_the_node(client: Client) -> None:
    assert (await client.get("/node_id")).json() == NODE
    assert (await client.get("/v1/feature-flags")).json() == {"disaggregation": False}
    assert (await client.get("/v1/instance-links")).json() == []


async def test_onboarding_is_remembered(client: Client) -> None:
    assert (await client.get("/onboarding")).json() == {"completed": False}
    assert (await client.post("/onboarding")).json() == {"completed": True}
    assert (await client.get("/onboarding")).json() == {"completed": True}


async def test_onboarding_survives_in_a_file(serving: Any, tmp_path: Any) -> None:
    file = tmp_path / "cache" / "onboarding_complete"
    async with serving(onboarding_file=file) as client:
        await client.post("/onboarding")
    assert file.exists()
    async with serving(onboarding_file=file) as client:
        assert (await client.get("/onboarding")).json() == {"completed": True}


async def test_a_preview_is_taken_back_unchanged(cluster: FakeCluster, client: Client) -> None:
    previews = (await client.get("/instance/previews", params={"model_id": "org/model"})).json()["previews"]
    possible, impossible = previews
    assert possible["error"] is None
    assert possible["memory_delta_by_node"] == {NODE: 2_000_000}
    assert {key: possible[key] for key in PIPELINE} == PIPELINE
    assert impossible["instance"] is None
    assert impossible["error"] == "the model has no tensor sharding"
    created = await client.post("/instance", json={"instance": possible["instance"]})
    assert created.status_code == 200
    assert created.json()["message"] == "Command received."
    command = cluster.commands[-1]
    assert isinstance(command, CreateInstance)
    assert command.instance == instance_of(ModelId("org/model"), identifier="previewed")
    assert (await client.get("/instance/previewed")).json() == possible["instance"]
    assert possible["instance"] in (await client.get("/instance")).json()
    assert (await client.get(f"/v1/commands/{command.command_id}")).json()["subject_id"] == "previewed"


async def test_an_instance_is_tagged_and_camel_case(client: Client) -> None:
    tagged = (await client.get("/instance/instance-1")).json()
    instance = tagged["MlxRingInstance"]
    shard = instance["shardAssignments"]["runnerToShard"]["runner-instance-1"]["PipelineShardMetadata"]
    assert instance["shardAssignments"]["nodeToRunner"] == {NODE: "runner-instance-1"}
    assert (shard["deviceRank"], shard["worldSize"], shard["startLayer"], shard["endLayer"]) == (0, 1, 0, 4)
    assert shard["modelCard"]["storageSize"] == {"inBytes": 1_000_000}


async def test_placing_waits_for_the_decision(cluster: FakeCluster, client: Client) -> None:
    placed = await client.post("/place_instance", json={"modelId": "org/other", "minNodes": 1, "sharding": None})
    answer = placed.json()
    assert placed.status_code == 200
    assert answer["instance"]["MlxRingInstance"]["instanceId"] == answer["instance_id"]
    assert answer["model_card"]["modelId"] == "org/other"
    assert InstanceId(answer["instance_id"]) in cluster.states.state.instances
    command = cluster.commands[-1]
    assert isinstance(command, PlaceInstance)
    removed = await client.delete(f"/instance/{answer['instance_id']}")
    assert removed.json()["instance_id"] == answer["instance_id"]
    assert (await client.delete(f"/instance/{answer['instance_id']}")).status_code == 404


async def test_a_bad_placement_names_its_field(client: Client) -> None:
    bad: list[tuple[dict[str, Any], str]] = [
        ({}, "model_id"),
        ({"model_id": "org/model", "min_nodes": 0}, "min_nodes"),
        ({"model_id": "org/model", "sharding": "Diagonal"}, "sharding"),
        ({"model_id": "org/model", "context_length": -1}, "context_length"),
        ({"model_id": "org/nothing"}, "model"),
    ]
    for body, param in bad:
        response = await client.post("/place_instance", json=body)
        assert response.status_code in {400, 404}
        assert response.json()["error"]["param"] == param


async def test_the_placement_and_its_refusal(client: Client) -> None:
    placement = await client.get("/instance/placement", params={"model_id": "org/model"})
    assert "MlxRingInstance" in placement.json()
    tensor = await client.get("/instance/placement", params={"model_id": "org/model", "sharding": "Tensor"})
    assert tensor.status_code == 400
    assert tensor.json()["error"]["code"] == "unplaceable"
    jaccl = await client.get("/instance/placement", params={"model_id": "org/model", "instance_meta": "MlxJaccl"})
    assert jaccl.status_code == 400


async def test_await_is_ready_only_when_every_rank_is(cluster: FakeCluster, client: Client) -> None:
    cluster.loading = asyncio.Event()
    await client.post("/place_instance", json={"model_id": OTHER})
    short = await client.get("/instance/await", params={"model_id": OTHER, "timeout_seconds": 0.2})
    assert events_of(short.text)[0]["type"] == "timeout"
    assert "1 of 4 layers" in events_of(short.text)[0]["message"]
    loading = await client.post("/v1/chat/completions", json={**BODY, "model": OTHER})
    assert loading.status_code == 503
    assert loading.json()["error"]["code"] == "model_loading"
    assert "retry-after" in loading.headers
    waiting = asyncio.create_task(client.get("/instance/await", params={"model_id": OTHER}))
    await asyncio.sleep(0.05)
    cluster.loading.set()
    [ready] = events_of((await waiting).text)
    assert ready["type"] == "ready"
    assert ready["instance"]["MlxRingInstance"]["shard_assignments"]["model_id"] == OTHER


async def test_await_ends_when_the_instance_is_gone(cluster: FakeCluster, client: Client) -> None:
    cluster.loading = asyncio.Event()
    placed = (await client.post("/place_instance", json={"model_id": OTHER})).json()
    waiting = asyncio.create_task(client.get("/instance/await", params={"instance_id": placed["instance_id"]}))
    await asyncio.sleep(0.05)
    instance = InstanceId(placed["instance_id"])
    await cluster.record(InstanceRemoved(instance=instance, code=Code.RUNNER_FAILED, reason="it died 3 times"))
    [error] = events_of((await waiting).text)
    assert (error["type"], error["code"]) == ("error", "runner_failed")
    assert "it died 3 times" in error["message"]


async def test_autoload_places_and_waits(cluster: FakeCluster, serving: Any) -> None:
    async with serving(autoload=True) as client:
        answer = await client.post("/v1/chat/completions", json={**BODY, "model": OTHER})
        assert answer.json()["choices"][0]["message"]["content"] == "Hello world"
        command = next(command for command in cluster.commands if isinstance(command, PlaceInstance))
        assert command.only_if_absent


async def test_autoload_gives_up_at_its_limit(cluster: FakeCluster, serving: Any) -> None:
    cluster.loading = asyncio.Event()
    async with serving(autoload=True, autoload_timeout=0.2) as client:
        answer = await client.post("/v1/chat/completions", json={**BODY, "model": OTHER, "stream": True})
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "model_loading"
        cluster.loading.set()


async def test_state_is_served_whole_and_by_path(cluster: FakeCluster, client: Client) -> None:
    state = (await client.get("/state")).json()
    assert state["session"] == "s1"
    assert list(state["instances"]) == ["instance-1"]
    assert state["telemetry"][NODE]["memory"]["age"] == 0.25
    assert (await client.get(f"/state/nodes/{NODE}/models/0/card/model_id")).json() == "org/model"
    assert (await client.get("/state/telemetry")).json()[NODE]["memory"]["gauge"]["type"] == "memory"
    await cluster.record(ModelCardAdded(card=card_of(ModelId("my/own"))))
    await cluster.states.wait(lambda now: "my/own" in now.cards, timeout=5)
    assert (await client.get("/state/cards/my%2Fown/model_id")).json() == "my/own"
    for path in ("nope", "nodes/x", f"nodes/{NODE}/models/7", "session/deeper", "cards/my/own"):
        missing = await client.get(f"/state/{path}")
        assert missing.status_code == 404
        assert missing.json()["error"]["message"].startswith("unable to find path")


async def test_events_come_as_a_page(client: Client) -> None:
    events = (await client.get("/events")).json()
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert events[0]["index"] == "s1.1"
    assert events[0]["event"]["type"] == "epoch_started"
    page = (await client.get("/events", params={"after": "s1.1", "limit": 2})).json()
    assert [event["sequence"] for event in page] == [2, 3]


async def test_events_are_followed_and_resumed(cluster: FakeCluster, client: Client) -> None:
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "s1.4"}
    async with client.stream("GET", "/events", headers=headers) as response:
        ids: list[str] = []
        async for line in response.aiter_lines():
            if line.startswith("id: "):
                ids.append(line.removeprefix("id: "))
            if ids == ["s1.5"] and line.startswith("data: "):
                await cluster.record(ModelCardAdded(card=card_of(ModelId("my/own"))))
            if len(ids) == 2:
                break
    assert ids == ["s1.5", "s1.6"]


async def test_a_place_before_the_log_is_410(cluster: FakeCluster, client: Client) -> None:
    await cluster.bus.purge(EVENTS.name, below=4)
    gone = await client.get("/events", params={"after": "s1.1"})
    assert gone.status_code == 410
    assert gone.json()["error"]["code"] == "resume_expired"
    assert [event["sequence"] for event in (await client.get("/events")).json()] == [4, 5]
    assert (await client.get("/events", params={"after": "other.4"})).status_code == 410
    assert (await client.get("/events", params={"after": "junk"})).status_code == 400
    assert (await client.get("/events", params={"limit": 0})).json()["error"]["param"] == "limit"


async def test_models_say_how_far_they_are(client: Client) -> None:
    models = {model["id"]: model for model in (await client.get("/v1/models")).json()["data"]}
    assert models["org/model"]["status"] == "running"
    assert models["org/model"]["instances"] == ["instance-1"]
    assert models["org/other"]["status"] == "known"
    assert (await client.get("/models")).json()["data"][0]["object"] == "model"
    for status in ("running", "downloaded"):
        listed = (await client.get("/v1/models", params={"status": status})).json()["data"]
        assert [model["id"] for model in listed] == ["org/model"]


async def test_one_model_by_id_or_alias(client: Client) -> None:
    for name in ("org/model", "org%2Fmodel", "starter"):
        assert (await client.get(f"/v1/models/{name}")).json()["id"] == "org/model"
    response = await client.get("/v1/models/org/nothing")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


async def test_adding_asks_the_node(cluster: FakeCluster, client: Client) -> None:
    orders: list[ImportModel] = []

    async def import_model(payload: bytes) -> bytes:
        orders.append(decode_as(ImportModel, payload))
        return encode(ModelReply(model=OTHER))

    responder = await cluster.bus.respond(subjects.control(NODE, IMPORT_MODEL), import_model)
    added = await client.post("/models/add", json={"model_id": "starter"})
    assert added.json()["id"] == OTHER
    assert (await client.post("/models/add", json={"model_id": "org/model"})).status_code == 200, (
        "the starter by its id"
    )
    assert (await client.post("/models/import", json={"path": "/m.gguf", "model_id": "a/b"})).status_code == 200
    assert orders == [ImportModel(starter=True)] * 2 + [ImportModel(path="/m.gguf", model_id="a/b")]
    await responder.stop()
    hub = await client.post("/models/add", json={"model_id": "org/elsewhere"})
    assert (hub.status_code, hub.json()["error"]["code"]) == (501, "not_built")
    relative = await client.post("/models/import", json={"path": "m.gguf"})
    assert relative.json()["error"]["param"] == "path"


async def test_adding_tells_its_progress(cluster: FakeCluster, client: Client) -> None:
    async def import_model(_payload: bytes) -> bytes:
        gauge = ImportGauge(model="org/other", stage="converting", done=1, total=2)
        sample = Sample(taken_at=0, interval=1, gauge=gauge)
        await cluster.bus.publish(subjects.telemetry(NODE, "import"), encode(sample))
        await asyncio.sleep(0.05)
        return encode(ModelReply(model=OTHER))

    responder = await cluster.bus.respond(subjects.control(NODE, IMPORT_MODEL), import_model)
    headers = {"Accept": "text/event-stream"}
    told = events_of((await client.post("/models/add", json={"model_id": "starter"}, headers=headers)).text)
    assert [event["type"] for event in told] == ["progress", "complete"]
    assert (told[0]["stage"], told[0]["done"], told[0]["total"]) == ("converting", 1, 2)
    assert told[1]["model"]["id"] == OTHER
    await responder.stop()


async def test_a_failed_import_says_why(cluster: FakeCluster, client: Client) -> None:
    async def refuse(_payload: bytes) -> bytes:
        return encode(ModelReply(code=Code.INVALID_REQUEST, message="type Q2_K is not supported"))

    responder = await cluster.bus.respond(subjects.control(NODE, IMPORT_MODEL), refuse)
    plain = await client.post("/models/import", json={"path": "/m.gguf"})
    assert plain.status_code == 400
    assert plain.json()["error"]["message"] == "type Q2_K is not supported"
    headers = {"Accept": "text/event-stream"}
    told = events_of((await client.post("/models/import", json={"path": "/m.gguf"}, headers=headers)).text)
    assert told[-1]["error"]["code"] == "invalid_request"
    await responder.stop()


async def test_removing_files_and_cards(cluster: FakeCluster, client: Client) -> None:
    removed: list[str] = []

    async def remove(payload: bytes) -> bytes:
        order = decode_as(RemoveModel, payload)
        removed.append(order.model)
        return encode(ModelReply(model=order.model))

    responder = await cluster.bus.respond(subjects.control(NODE, REMOVE_MODEL), remove)
    assert (await client.delete("/models/org/model")).json()["model_id"] == "org/model"
    assert removed == ["org/model"]
    await responder.stop()
    await cluster.record(ModelCardAdded(card=card_of(ModelId("my/own"))))
    await cluster.states.wait(lambda now: "my/own" in now.cards, timeout=5)
    deleted = await client.delete("/models/custom/my/own")
    assert deleted.json() == {"message": "Model card deleted", "model_id": "my/own"}
    assert (await client.delete("/models/custom/org/model")).status_code == 404


async def test_health_and_readiness(cluster: FakeCluster, client: Client) -> None:
    assert (await client.get("/health")).json()["status"] == "ok"
    assert (await client.get("/ready")).json()["status"] == "ready"
    cluster.gateway_bus.disconnect()
    lost = await client.get("/ready")
    cluster.gateway_bus.reconnect()
    assert lost.status_code == 503
    assert lost.json()["reasons"] == ["the message broker is not connected"]
    assert (await client.get("/health")).status_code == 200


async def test_metrics_count_requests_and_tokens(client: Client) -> None:
    await client.post("/v1/chat/completions", json=BODY)
    await client.get("/v1/nothing")
    text = (await client.get("/metrics")).text
    assert 'exo_http_requests_total{method="POST",route="/v1/chat/completions",status="200"} 1.0' in text
    assert 'exo_tokens_total{kind="completion"} 2.0' in text
    assert 'exo_runners{status="ready"} 1.0' in text
    assert "exo_bus_connected 1.0" in text
    assert "exo_relays_open 0.0" in text
    assert 'route="unmatched",status="404"' in text


async def test_followers_end_when_the_server_stops(cluster: FakeCluster) -> None:
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with Client(base_url=url, timeout=20) as client:
        async with serve(cluster.app(), listener):
            response = await client.send(client.build_request("GET", "/events?follow=true"), stream=True)
            started = monotonic()
        assert monotonic() - started < GRACE
        assert ": keep-alive" in (await response.aread()).decode()
    assert cluster.bus.server.subscriptions == 0


async def test_the_report_of_the_cluster_and_the_nodes_that_are_gone(cluster: FakeCluster, client: Client) -> None:
    report = (await client.get("/v1/cluster")).json()
    assert report["report"]["why"] == "it was the first one here"
    assert report["merges"] == []
    await cluster.record(NodeTimedOut(node=NODE))
    await until(lambda: not cluster.states.state.nodes[NODE].online)
    node = (await client.get(f"/state/nodes/{NODE}")).json()
    assert (node["online"], node["cause"]) == (False, "timed_out")
    assert node["since"] > 1_700_000_000_000
