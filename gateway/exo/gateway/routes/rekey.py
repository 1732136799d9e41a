"""Tells this node that the secret of its cluster was changed beside it."""

from litestar import post

from exo.gateway.gateway import Here
from exo.gateway.ports import Rekeyed


@post("/v1/cluster/rekey", status_code=200, summary="Read the cluster's secret again")
async def rekey_cluster(gateway: Here) -> Rekeyed:
    """The secret itself never travels: `exo cluster` has written it to the file that this node reads."""
    return await gateway.cluster.rekey()
