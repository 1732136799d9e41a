"""The official OpenAI SDK against an API that asks for keys; a proxy's header makes the caller somebody elsewhere."""

from collections.abc import AsyncGenerator

import openai
import pytest

from exo.gateway.auth import AccessPolicy
from support.fake_cluster import MODEL, FakeCluster
from support.gateway import Client, open_client

AFAR = {"X-Forwarded-For": "192.0.2.7"}


@pytest.fixture
async def opened() -> AsyncGenerator[Client]:
    """A node that is open to the network."""
    async with (
        FakeCluster().running() as cluster,
        open_client(cluster, access=AccessPolicy(keys_required=True)) as client,
    ):
        yield client


def connect(client: Client, key: str) -> openai.AsyncOpenAI:
    url = f"{str(client.base_url).rstrip('/')}/v1"
    return openai.AsyncOpenAI(base_url=url, api_key=key, default_headers=AFAR, max_retries=0, timeout=20)


async def test_a_key_is_sent_as_the_sdk_sends_it(opened: Client) -> None:
    made = (await opened.post("/v1/keys", json={"name": "sdk"})).json()
    async with connect(opened, made["key"]) as sdk:
        assert MODEL in [model.id async for model in sdk.models.list()]
        stream = await sdk.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])
    assert text == "Hello world"


async def test_refusals_are_the_errors_that_the_sdk_knows(opened: Client) -> None:
    async with connect(opened, "none") as sdk:
        with pytest.raises(openai.AuthenticationError, match="exo keys add") as refused:
            await sdk.models.list()
    assert refused.value.code == "unauthorized"
    made = (await opened.post("/v1/keys", json={"name": "reader", "scopes": ["read"]})).json()
    async with connect(opened, made["key"]) as sdk:
        with pytest.raises(openai.PermissionDeniedError, match="needs infer") as denied:
            await sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hi"}])
    assert denied.value.code == "insufficient_scope"
