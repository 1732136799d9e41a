"""A gateway in front of a fake cluster, served over real HTTP on loopback."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx2
import pytest

from exo.gateway.serve import bind, serve
from support.fake_cluster import FakeCluster

Client = httpx2.AsyncClient
Serve = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster().running() as running:
        yield running


@asynccontextmanager
async def open_client(cluster: FakeCluster, **settings: Any) -> AsyncGenerator[Client]:
    listener = bind("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with serve(cluster.app(**settings), listener), Client(base_url=url, timeout=20) as client:
        yield client


@pytest.fixture
def serving(cluster: FakeCluster) -> Serve:
    """Serve the cluster with settings of the test's choice."""
    return lambda **settings: open_client(cluster, **settings)


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with open_client(cluster) as opened:
        yield opened
