"""The client, a chat through it, and bringing a model up: against scripted answers."""

from typing import Any

import httpx2
import pytest

from exo.ops.chat import Message, Piece, Question, stream_answer
from exo.ops.client import NodeClient, is_loopback
from exo.ops.errors import CommandError, NoNodeError
from exo.ops.placing import add_model, ensure_ready, find_model, list_models
from support.scripted_api import ScriptedApi, refuse, stream

QUESTION = Question(model="m", messages=[Message("user", "hi")], max_tokens=5)


async def collect(api: ScriptedApi) -> list[Piece]:
    async with api.client() as client:
        return [piece async for piece in stream_answer(client, QUESTION)]


def frame(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


async def test_an_answer_comes_in_pieces() -> None:
    call = {"index": 0, "id": "c", "function": {"name": "look", "arguments": ""}}
    more = {"index": 0, "function": {"arguments": '{"a":1}'}}
    api = ScriptedApi(
        {
            "POST /v1/chat/completions": stream(
                frame(role="assistant", content=""),
                frame(reasoning_content="hm"),
                frame(content="Hé"),
                frame(tool_calls=[call]),
                frame(tool_calls=[more]),
                {"choices": [], "usage": {"prompt_tokens": 1}},
                "[DONE]",
            )
        }
    )
    assert await collect(api) == [
        Piece("reasoning", "hm"),
        Piece("text", "Hé"),
        Piece("tool", "\nlook "),
        Piece("tool", '{"a":1}'),
    ]
    assert api.asked == [
        (
            "POST /v1/chat/completions",
            {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "stream": True},
        )
    ]


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        (refuse(404, "model_not_found", "The model 'm' is not known."), "model_not_found", "is not known"),
        (
            stream(frame(content="a"), {"error": {"message": "It died.", "code": "runner_failed"}}),
            "runner_failed",
            "It died",
        ),
        (stream(frame(content="a")), "", "broke off"),
        (stream("{not json"), "", "cannot be read"),
        (httpx2.Response(502, text="<html>"), "", "502 Bad Gateway"),
    ],
)
async def test_a_refusal_or_a_cut_answer_is_an_error(answer: httpx2.Response, code: str, text: str) -> None:
    with pytest.raises(CommandError, match=text) as caught:
        await collect(ScriptedApi({"POST /v1/chat/completions": answer}))
    assert caught.value.code == code


async def test_no_node_has_an_exit_code_of_its_own() -> None:
    async with NodeClient("http://127.0.0.1:1") as client:
        with pytest.raises(NoNodeError, match=r"no node answers at http://127\.0\.0\.1:1; start one"):
            await client.get("/state", dict)
    async with NodeClient("nonsense://x") as client:
        with pytest.raises(NoNodeError):
            await client.get("/state", dict)


async def test_a_slow_or_torn_connection_is_said() -> None:
    def time_out(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("slow", request=request)

    def tear(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.RemoteProtocolError("torn", request=request)

    for fault, text in ((time_out, "did not answer in time"), (tear, "broke: torn")):
        async with NodeClient("http://node:1", transport=httpx2.MockTransport(fault)) as client:
            with pytest.raises(CommandError, match=text):
                await client.get("/state", dict)


async def test_an_answer_of_another_shape_names_the_version() -> None:
    async with ScriptedApi({"GET /state": {"a": 1}}).client() as client:
        with pytest.raises(CommandError, match=r"exo --version"):
            await client.get("/state", list[int])


@pytest.mark.parametrize(
    ("url", "answer"),
    [("http://127.0.0.1:1", True), ("http://[::1]:1", True), ("http://localhost", True), ("http://10.0.0.1", False)],
)
def test_loopback(url: str, *, answer: bool) -> None:
    assert is_loopback(url) is answer


# Bringing a model up.

PLACED = {"message": "Command received.", "command_id": "c", "instance_id": "i1", "model_card": {"modelId": "org/m"}}
READY = stream({"type": "ready", "instance": {}})
LOADING = {
    "r1": {
        "id": "r1",
        "instance": "i1",
        "node": "n",
        "rank": 0,
        "status": {"type": "loading", "layers_loaded": 3, "total_layers": 30},
    }
}


class Shown(list[tuple[str, int, int]]):
    def __call__(self, what: str, done: int = 0, total: int = 0, *, detail: str = "") -> None:
        self.append((what, done, total))


async def test_a_model_that_is_there_is_placed_once() -> None:
    api = ScriptedApi({"POST /place_instance": PLACED, "GET /instance/await": READY, "GET /state/runners": LOADING})
    async with api.client() as client:
        assert await ensure_ready(client, "m", show=Shown()) == "org/m"
    assert api.asked[0] == ("POST /place_instance", {"model_id": "m", "only_if_absent": True})
    assert ("GET /instance/await", {"instance_id": "i1", "timeout_seconds": "0"}) in api.asked


async def test_a_model_without_files_is_added_first() -> None:
    missing = refuse(404, "model_files_missing", "no files")
    api = ScriptedApi(
        {
            "POST /place_instance": [missing, httpx2.Response(200, json=PLACED)],
            "POST /models/add": stream(
                {"type": "progress", "model": "org/m", "stage": "fetching", "done": 5, "total": 10, "unit": "bytes"},
                {"type": "progress", "model": "org/m", "stage": "complete", "done": 10, "total": 10, "unit": "bytes"},
                {"type": "complete", "model": {"id": "org/m", "status": "downloaded"}},
            ),
            "GET /instance/await": READY,
            "GET /state/runners": {},
        }
    )
    shown = Shown()
    async with api.client() as client:
        assert await ensure_ready(client, "starter", show=shown) == "org/m"
    assert shown == [("fetching org/m", 5, 10)]
    assert ("POST /models/add", {"model_id": "starter"}) in api.asked


async def test_a_model_that_cannot_be_fetched_keeps_the_reason_that_helps() -> None:
    api = ScriptedApi(
        {
            "POST /place_instance": refuse(404, "model_files_missing", "no node holds its files"),
            "POST /models/add": refuse(501, "not_built", "no hub yet"),
        }
    )
    async with api.client() as client:
        with pytest.raises(CommandError, match="no node holds its files"):
            await ensure_ready(client, "m", show=Shown())


async def test_an_instance_that_fails_is_an_error_with_its_reason() -> None:
    api = ScriptedApi(
        {
            "POST /place_instance": PLACED,
            "GET /instance/await": stream({"type": "error", "code": "runner_failed", "message": "it died thrice."}),
            "GET /state/runners": LOADING,
        }
    )
    async with api.client() as client:
        with pytest.raises(CommandError, match="it died thrice") as caught:
            await ensure_ready(client, "m", show=Shown())
    assert caught.value.code == "runner_failed"


async def test_an_import_that_fails_is_an_error_with_its_code() -> None:
    error = {"error": {"message": "Q2_K is not supported.", "code": "invalid_request"}}
    api = ScriptedApi({"POST /models/import": stream(error)})
    async with api.client() as client:
        with pytest.raises(CommandError, match="Q2_K is not supported") as caught:
            await add_model(client, "/models/import", {"path": "/x.gguf"}, show=Shown())
    assert caught.value.code == "invalid_request"
    async with ScriptedApi({"POST /models/add": stream()}).client() as client:
        with pytest.raises(CommandError, match="stopped before"):
            await add_model(client, "/models/add", {"model_id": "m"}, show=Shown())


async def test_models_are_listed_and_found() -> None:
    entry = {"id": "org/m", "status": "downloaded", "object": "model"}
    api = ScriptedApi({"GET /v1/models": {"object": "list", "data": [entry]}, "GET /v1/models/org/m": entry})
    async with api.client() as client:
        assert [model.id for model in await list_models(client, downloaded=True)] == ["org/m"]
        assert (await find_model(client, "org/m")).status == "downloaded"
    assert api.asked[0] == ("GET /v1/models", {"status": "downloaded"})


async def test_a_refused_key_says_where_one_is_put() -> None:
    api = ScriptedApi({"GET /v1/models/m": refuse(401, "unauthorized", "An API key is required.")})
    async with api.client() as client:
        with pytest.raises(CommandError, match="EXO_API_KEY") as raised:
            await find_model(client, "m")
    assert raised.value.code == "unauthorized"
