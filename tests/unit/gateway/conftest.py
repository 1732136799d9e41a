"""A gateway in front of a fake cluster, served over real HTTP on loopback."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from support.fake_cluster import FakeCluster
from support.gateway import Client, open_client

Serve = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster().running() as running:
        yield running


@pytest.fixture
def serving(cluster: FakeCluster) -> Serve:
    """Serve the cluster with settings of the test's choice."""

    def serve_with(**settings: Any) -> AbstractAsyncContextManager[Client]:
        return open_client(cluster, **settings)

    return serve_with


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[Client]:
    async with open_client(cluster) as opened:
        yield opened
