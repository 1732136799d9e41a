"""Tells this node that the secret of its cluster was changed beside it."""

from litestar import post

from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Here
from exo.gateway.ports import Rekeyed
from exo.streams.codes import Code


@post("/v1/cluster/rekey", status_code=200, summary="Read the cluster's secret again")
async def rekey_cluster(gateway: Here) -> Rekeyed:
    """The secret itself never travels: `exo cluster` has written it to the file that this node reads."""
    if gateway.cluster is None:
        raise GatewayError(Code.INVALID_REQUEST, "This node knows of no others.")
    return await gateway.cluster.rekey()
