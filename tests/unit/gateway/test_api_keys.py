"""API keys over HTTP: who needs one, what it opens, and that its text is seen once.

Everything here comes over loopback; a header of a proxy makes it somebody else's request.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
from litestar.connection import ASGIConnection

from exo.gateway.api_keys import NEEDS, hash_key, is_local
from exo.gateway.auth import AccessPolicy
from exo.gateway.routes.table import ADMIN, EITHER, HANDLERS, INFER, OPEN, READ
from exo.gateway.routes.unbuilt import UNBUILT_HANDLERS
from exo.streams.codec import encode
from exo.streams.layout import EVENTS
from support.fake_cluster import FakeCluster, always
from support.gateway import BODY, Client, read_stream, until

AFAR = {"X-Forwarded-For": "192.0.2.7"}
CHAT = "/v1/chat/completions"
OPENED = AccessPolicy(keys_required=True)


@pytest.fixture
async def opened(serving: Callable[..., AbstractAsyncContextManager[Client]]) -> AsyncIterator[Client]:
    """A node that is open to the network."""
    async with serving(access=OPENED) as client:
        yield client


async def make_key(client: Client, *scopes: str) -> dict[str, Any]:
    answer = await client.post("/v1/keys", json={"name": "laptop", "scopes": scopes or ("infer",)})
    assert answer.status_code == 201
    made: dict[str, Any] = answer.json()
    return made


def bearing(made: dict[str, Any]) -> dict[str, str]:
    return {**AFAR, "Authorization": f"Bearer {made['key']}"}


async def test_an_open_node_asks_strangers_for_a_key_and_says_how_to_get_one(opened: Client) -> None:
    refused = await opened.post(CHAT, json=BODY, headers=AFAR)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("unauthorized", "authentication_error")
    assert "exo keys add" in error["message"]
    for path in ("/health", "/ready", "/docs", "/openapi.json", "/schema"):
        assert (await opened.get(path, headers=AFAR)).status_code == 200, path
    # The page itself loads, or says that it was not built.
    assert (await opened.get("/", headers=AFAR)).status_code in {200, 503}
    assert (await opened.get("/state", headers=AFAR)).status_code == 401
    assert (await opened.get("/state?api_key=exo-x", headers=AFAR)).status_code == 401


@pytest.mark.parametrize("header", ["Authorization", "authorization", "x-api-key"])
async def test_a_key_opens_what_its_scope_says(opened: Client, header: str) -> None:
    made = await make_key(opened, "infer")
    sent = {**AFAR, header: made["key"] if header == "x-api-key" else f"Bearer {made['key']}"}
    answer = await opened.post(CHAT, json=BODY, headers=sent)
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world"
    assert (await opened.get("/v1/models", headers=sent)).status_code == 200
    refused = await opened.get("/state", headers=sent)
    assert refused.status_code == 403
    error = refused.json()["error"]
    assert (error["code"], error["type"]) == ("insufficient_scope", "permission_error")
    assert "exo keys add NAME --scope read" in error["message"]
    assert (await opened.post("/place_instance", json={}, headers=sent)).status_code == 403


async def test_reading_does_not_allow_asking_and_admin_allows_all(opened: Client) -> None:
    reader, admin = bearing(await make_key(opened, "read")), bearing(await make_key(opened, "admin"))
    assert (await opened.get("/state", headers=reader)).status_code == 200
    assert (await opened.post(CHAT, json=BODY, headers=reader)).status_code == 403
    assert (await opened.get("/v1/keys", headers=reader)).status_code == 403
    assert (await opened.get("/v1/keys", headers=admin)).status_code == 200
    assert (await opened.post(CHAT, json=BODY, headers=admin)).status_code == 200


async def test_a_wrong_key_is_not_admitted_whatever_it_begins_with(opened: Client) -> None:
    for text in ("exo-wrong", "sk-wrong"):
        refused = await opened.get("/state", headers={**AFAR, "Authorization": f"Bearer {text}"})
        assert refused.status_code == 401
        assert "is not admitted" in refused.json()["error"]["message"]


async def test_a_revoked_key_is_refused_at_once(opened: Client) -> None:
    made = await make_key(opened, "read")
    assert (await opened.delete(f"/v1/keys/{made['id']}")).json() == {"id": made["id"], "deleted": True}
    refused = await opened.get("/state", headers=bearing(made))
    assert refused.status_code == 401
    assert "revoked" in refused.json()["error"]["message"]
    assert (await opened.delete(f"/v1/keys/{made['id']}")).json()["error"]["code"] == "key_not_found"


async def test_this_machine_needs_no_key_but_a_wrong_one_is_refused(opened: Client, client: Client) -> None:
    for one in (opened, client):
        assert (await one.get("/state")).status_code == 200
        # What clients send that insist on a key.
        assert (await one.get("/state", headers={"Authorization": "Bearer none"})).status_code == 200
        assert (await one.get("/state", headers={"Authorization": "Bearer exo-wrong"})).status_code == 401
    infer = await make_key(client, "infer")
    assert (await client.get("/state", headers={"x-api-key": infer["key"]})).status_code == 403


async def test_the_text_of_a_key_is_shown_once_and_kept_nowhere(
    cluster: FakeCluster, client: Client, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    made = await make_key(client, "infer", "infer", "read")
    assert made["key"].startswith("exo-")
    assert len(made["key"]) > 40
    assert made["scopes"] == ["infer", "read"]
    listed = (await client.get("/v1/keys")).json()["data"]
    assert [set(entry) for entry in listed] == [{"id", "name", "scopes", "created"}]
    state = cluster.states.state
    assert [key.sha256 for key in state.api_keys.values()] == [hash_key(made["key"])]
    stored = [message.payload for message in await cluster.bus.read(EVENTS.name, "exo.events.>")]
    await client.get("/state", headers={"x-api-key": made["key"] + "x"})
    logged = caplog.text + capsys.readouterr().out
    for text in (encode(state), b"".join(stored), logged.encode()):
        assert made["key"][4:].encode() not in text


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x", "scopes": ["root"]}, "scopes"),
        ({"name": "x", "key": 1}, ""),
    ],
)
async def test_a_key_that_makes_no_sense_is_refused(client: Client, body: dict[str, Any], param: str) -> None:
    refused = await client.post("/v1/keys", json=body)
    assert refused.status_code == 400
    assert param in (refused.json()["error"]["param"] or "")


async def test_only_the_key_that_asked_resumes_and_cancels(opened: Client, cluster: FakeCluster) -> None:
    mine, yours = bearing(await make_key(opened, "infer")), bearing(await make_key(opened, "infer"))
    admin = bearing(await make_key(opened, "admin"))
    stream, _ = await read_stream(opened, BODY, **mine)
    url = f"/v1/requests/{stream.frames[0]['id']}/stream"
    assert (await opened.get(url, headers=mine)).status_code == 200
    assert (await opened.get(url, headers=yours)).status_code == 404
    assert (await opened.get(url)).status_code == 404

    silence = asyncio.Event()
    cluster.script = always([silence])
    for owner, allowed in ((mine, False), (yours, True), (admin, True)):
        asking = asyncio.create_task(opened.post(CHAT, json=BODY, headers=yours))
        await until(lambda: bool(cluster.states.state.tasks))
        (task,) = cluster.states.state.tasks
        cancelled = await opened.post(f"/v1/cancel/{task}", headers=owner)
        assert cancelled.status_code == (200 if allowed else 404)
        if not allowed:
            await opened.post(f"/v1/cancel/{task}", headers=yours)
        assert (await asking).status_code == 499


@pytest.mark.parametrize(
    ("host", "headers", "local"),
    [
        ("127.0.0.1", {}, True),
        ("127.8.0.1", {}, True),
        ("::1", {}, True),
        ("::ffff:127.0.0.1", {}, True),
        ("192.0.2.7", {}, False),
        ("::ffff:192.0.2.7", {}, False),
        ("unix", {}, False),
        ("127.0.0.1", {"Forwarded": "for=192.0.2.7"}, False),
    ],
)
def test_local_is_who_asks_from_this_machine_for_himself(host: str, headers: dict[str, str], *, local: bool) -> None:
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    scope: Any = {"type": "http", "client": (host, 1), "headers": raw}
    assert is_local(ASGIConnection(scope)) == local


def test_every_route_says_what_it_needs() -> None:
    assert [handler for handler in HANDLERS if NEEDS not in handler.opt] == []
    writes = {handler for handler in HANDLERS if handler.http_methods & {"POST", "PUT", "DELETE"}}
    harmless = {"complete_chat", "cancel_request", "complete_onboarding", "refuse_unknown"}
    for handler in writes - set(UNBUILT_HANDLERS):
        assert handler.fn.__name__ in harmless or handler.opt[NEEDS] == ADMIN, handler
    assert {handler.opt[NEEDS] for handler in HANDLERS} == {OPEN, INFER, READ, EITHER, ADMIN}
