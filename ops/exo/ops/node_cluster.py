"""The cluster as the API of this node shows and changes it: fulfils the gateway's `ClusterSource`. Made by `up.py`."""

from exo.broker.cluster import Cluster
from exo.broker.cluster_report import ClusterReport
from exo.broker.credentials import Credentials
from exo.gateway.errors import GatewayError
from exo.gateway.ports import Rekeyed
from exo.ops.errors import SettingsError
from exo.ops.layers import Loaded
from exo.ops.secret import find_secret
from exo.streams.codes import Code
from exo.streams.ids import NodeId


class NodeCluster:
    """Reads the broker's `Cluster`, and re-reads the secret's file when it was changed."""

    def __init__(self, cluster: Cluster, loaded: Loaded) -> None:
        self._cluster = cluster
        self._loaded = loaded

    @property
    def hub(self) -> NodeId:
        """The node whose message broker all use; empty while there is none."""
        return self._cluster.hub

    def report(self) -> ClusterReport:
        """Give what this node knows of the cluster."""
        return self._cluster.report()

    def explain(self) -> str:
        """Say in half a sentence who is hub, or who was and what is happening."""
        return self._cluster.explain()

    def explain_full(self) -> str:
        """Say why the broker's store takes nothing new; empty when it does."""
        return self._cluster.explain_full()

    async def rekey(self) -> Rekeyed:
        """Use the secret that can be read now, or none; `GatewayError` when what is there is none."""
        try:
            secret = find_secret(self._loaded.settings, self._loaded.paths)
        except SettingsError as error:
            raise GatewayError(Code.INVALID_REQUEST, str(error)) from error
        await self._cluster.rekey(Credentials(self._loaded.settings.namespace, secret.text))
        return Rekeyed(closed=secret.closed, origin=secret.origin)
