"""Requests too large for one message: they lie in the object store for as long as they run, and no longer."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from exo.broker.bus import Ack
from exo.broker.errors import BusUnavailableError
from exo.broker.memory import MemoryBus
from exo.gateway import request_store
from exo.gateway.request_store import PreparedRequest, RequestStore
from exo.streams import subjects
from exo.streams.codec import decode_stored_request
from exo.streams.commands import CancelTask, SubmitTask
from exo.streams.ids import ModelId, TaskId
from exo.streams.layout import BLOB_THRESHOLD, BLOBS, MIB, REQUESTS
from exo.streams.requests import GenerationRequest, Message, ResumeRecord, StoredRequest, TextPart
from support.fake_cluster import FakeCluster, Piece, say
from support.gateway import BODY, Client, read_stream, until

URL = "/v1/chat/completions"
OBJECTS = f"OBJ_{BLOBS.name}"
PROMPT = "é" * (3 * MIB)
LARGE: dict[str, Any] = {**BODY, "messages": [{"role": "user", "content": PROMPT}]}


def make_request(size: int, task: str = "t1") -> StoredRequest:
    """A request whose text alone has so many bytes."""
    message = Message(role="user", content=(TextPart("x" * size),))
    request = GenerationRequest(model=ModelId("org/model"), messages=(message,))
    return StoredRequest(
        task=TaskId(task), request=request, resume=ResumeRecord(dialect="openai_chat", created=7, stream=True)
    )


async def count_objects(bus: MemoryBus) -> int:
    return (await bus.stream_info(OBJECTS)).messages


async def test_a_prompt_of_six_megabytes_is_answered_and_forgotten(cluster: FakeCluster, client: Client) -> None:
    seen: list[tuple[str, int, int]] = []

    def script(request: GenerationRequest) -> Sequence[Piece]:
        stored, objects = cluster.bus.server.stream(REQUESTS.name), cluster.bus.server.stream(OBJECTS)
        seen.append(
            (
                request.messages[0].text(),
                stored.info(consumers=0, now=0).bytes,
                objects.info(consumers=0, now=0).messages,
            )
        )
        return say("read", " it")

    cluster.script = script
    response = await client.post(URL, json=LARGE)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "read it"
    ((text, stored_bytes, objects),) = seen
    assert text == PROMPT
    assert stored_bytes < 1000
    # Six pieces, what is over, and the description.
    assert objects == 8

    left = objects

    async def look() -> None:
        nonlocal left
        left = await count_objects(cluster.bus)

    await until(lambda: left == 0, turn=look)


async def test_the_stream_of_a_large_request_can_be_resumed(cluster: FakeCluster, client: Client) -> None:
    stream, _ = await read_stream(client, LARGE)
    again = await client.get(f"/v1/requests/{stream.frames[0]['id']}/stream")
    assert (stream.text, again.status_code) == ("Hello world", 200)
    assert '"content":" world"' in again.text


async def test_what_no_runner_takes_is_413_and_not_stored(
    cluster: FakeCluster, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_store, "LARGEST_REQUEST", 5 * MIB)
    response = await client.post(URL, json=LARGE)
    assert response.status_code == 413
    error = response.json()["error"]
    assert error["code"] == "payload_too_large"
    assert str(5 * MIB) in error["message"]
    assert await count_objects(cluster.bus) == 0
    assert not cluster.commands


async def test_the_threshold_decides_where_a_request_lies() -> None:
    bus = MemoryBus()
    store = RequestStore(bus)
    small, large = make_request(BLOB_THRESHOLD - 1000, "small"), make_request(BLOB_THRESHOLD, "large")
    kept = [store.prepare(small), store.prepare(large)]
    for prepared in kept:
        await store.write(prepared)
    assert [one.is_large for one in kept] == [False, True]
    assert all(len(one.body) > BLOB_THRESHOLD - 1000 and not one.kept.request.messages for one in kept)
    messages = [await bus.get_last(REQUESTS.name, subjects.request(TaskId(name))) for name in ("small", "large")]
    stored = [decode_stored_request(message.payload) for message in messages if message is not None]
    assert stored == [small, kept[1].kept]
    for one in kept:
        await store.forget(one.kept)
    assert await count_objects(bus) == 0
    forgotten = [decode_stored_request(message.payload) for message in await bus.read(REQUESTS.name, ">")]
    assert [(one.blob, one.request.messages, one.resume.created) for one in forgotten] == [("", (), 7)] * 2


class FailingBus(MemoryBus):
    """Refuses to store on one kind of subject."""

    refused = ""

    async def append(self, subject: str, payload: bytes, *, headers: Mapping[str, str] | None = None) -> Ack:
        if subject.startswith(self.refused):
            raise BusUnavailableError("no answer in time")
        return await super().append(subject, payload, headers=headers)


@pytest.mark.parametrize("refused", ["exo.requests.", f"$O.{BLOBS.name}.M."])
async def test_a_request_that_cannot_be_stored_leaves_nothing_behind(refused: str) -> None:
    bus = FailingBus()
    bus.refused = refused
    store = RequestStore(bus)
    prepared = store.prepare(make_request(5 * MIB))
    with pytest.raises(BusUnavailableError):
        await store.write(prepared)
    assert await count_objects(bus) == 0


async def test_a_task_whose_body_cannot_be_stored_is_cancelled(
    cluster: FakeCluster, serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(_store: RequestStore, _prepared: PreparedRequest) -> None:
        raise BusUnavailableError("no answer in time")

    monkeypatch.setattr(RequestStore, "write", refuse)
    async with serving(command_timeout=0.3) as client:
        response = await client.post(URL, json=BODY)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "broker_unavailable"
    await until(lambda: len(cluster.commands) == 2)
    submitted, cancelled = cluster.commands
    assert isinstance(submitted, SubmitTask)
    assert isinstance(cancelled, CancelTask)
    assert cancelled.task == submitted.task
