"""`POST /v1/cluster/rekey`: the node is told that its secret changed, and never what it is."""

from exo.gateway.auth import AccessPolicy
from support.fake_cluster import FakeCluster
from support.gateway import open_client

AFAR = {"X-Forwarded-For": "192.0.2.7"}


async def test_a_node_reads_its_secret_again_and_says_where() -> None:
    async with FakeCluster().running() as cluster, open_client(cluster) as client:
        answer = await client.post("/v1/cluster/rekey")
        assert answer.status_code == 200
        assert answer.json() == {"closed": True, "origin": "/box/cluster.secret"}


async def test_strangers_may_not_ask_for_it() -> None:
    opened = AccessPolicy(keys_required=True)
    async with FakeCluster().running() as cluster, open_client(cluster, access=opened) as client:
        assert (await client.post("/v1/cluster/rekey", headers=AFAR)).status_code == 401
        assert (await client.post("/v1/cluster/rekey")).status_code == 200
