"""One real node with the scripted model, for clients that know nothing of exo."""

import os
from collections.abc import Generator, Iterator

import httpx2
import openai
import pytest

from support.node import NodeProcess, running_node

CONTEXT = 2048
"""Small, so that a prompt that is too long is quickly made."""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Generator[NodeProcess]:
    """`exo up` serving `exo/scripted`, shared by all tests of this folder."""
    home = tmp_path_factory.mktemp("api-home")
    kinds = ("CONFIG", "DATA", "CACHE", "STATE")
    env = {"HOME": str(home), "EXO_SCRIPTED": "tokens_per_second=300"}
    env |= {f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in kinds}
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EXO_")]:
            patch.delenv(name)
        with running_node(tmp_path_factory.mktemp("api-node"), "--offline", env=env) as process:
            order = {"model_id": "exo/scripted", "context_length": CONTEXT}
            httpx2.post(f"{process.url}/place_instance", json=order, timeout=30).raise_for_status()
            process.await_ready("exo/scripted")
            yield process


@pytest.fixture
def sdk(node: NodeProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client
