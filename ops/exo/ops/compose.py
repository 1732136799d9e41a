"""What each part of a node is told, made from the settings. Pure but for reading the machine; `up.py` calls it."""

from typing import TYPE_CHECKING

from exo.broker.cluster import ClusterSettings
from exo.broker.peering import PeersSettings
from exo.ops.backends import find_backends
from exo.ops.banner import exo_version
from exo.ops.identity import NodeIdentity
from exo.ops.layers import Loaded
from exo.ops.model_directories import find_model_directories
from exo.ops.settings import Settings
from exo.services.settings import EngineSettings, NodeSettings
from exo.streams.ids import BootId

if TYPE_CHECKING:
    from exo.gateway.settings import GatewaySettings

MEGABYTE = 1_000_000
LOOPBACK = "127.0.0.1"


def make_cluster_settings(loaded: Loaded, *, identity: NodeIdentity, boot: BootId) -> ClusterSettings:
    """Give where this node listens for others and how it looks for them."""
    settings, paths = loaded.settings, loaded.paths
    peers = PeersSettings(
        node=identity.node,
        boot=boot,
        name=settings.name,
        cluster=settings.namespace,
        version=exo_version(),
        host=LOOPBACK if settings.local else "",
        port=settings.cluster_port,
        port_is_explicit="cluster_port" in loaded.origins,
        bootstrap=settings.bootstrap_peers,
        discovery=settings.discovery and not settings.local,
        remembered=paths.peers_file,
    )
    return ClusterSettings(
        directory=paths.store,
        peers=peers,
        local=settings.local,
        nats_port=settings.nats_port,
        binary=settings.nats_server,
        worker=settings.worker,
        fingerprint=identity.fingerprint,
    )


def make_node_settings(loaded: Loaded, *, identity: NodeIdentity, boot: BootId, port: int) -> NodeSettings:
    """Give what the services need; `port` is the API's, 0 without one."""
    settings, paths = loaded.settings, loaded.paths
    directories = find_model_directories(settings, paths)
    return NodeSettings(
        node=identity.node,
        boot=boot,
        name=settings.name,
        version=exo_version(),
        model_directories=directories.writable,
        read_only_directories=directories.read_only,
        data_directory=paths.data,
        cluster=settings.namespace if "namespace" in loaded.origins else "",
        memory_budget=settings.memory_available_mb * MEGABYTE,
        macmon=str(settings.macmon_path or ""),
        api_port=port,
        backends=find_backends(),
        worker=settings.worker,
        offline=settings.offline,
        max_retries=settings.max_instance_retries,
        engine=_make_engine_settings(settings),
    )


def _make_engine_settings(settings: Settings) -> EngineSettings:
    return EngineSettings(
        max_batch=settings.max_concurrent_requests,
        max_queue=settings.max_queued_requests,
        prefill_step=settings.prefill_step,
        blas_threads=settings.blas_threads,
        dense_weights={"auto": None, "on": True, "off": False}[settings.dense_weights],
        script=settings.scripted,
    )


def needs_keys(settings: Settings) -> bool:
    """Whether callers on other machines need an API key. Imports a part of the gateway."""
    from exo.gateway.auth import is_loopback

    return settings.api and not settings.no_auth and not is_loopback(settings.host)


def make_gateway_settings(loaded: Loaded) -> "GatewaySettings":
    """Give how the API serves. Imports the gateway."""
    from exo.gateway.auth import AccessPolicy
    from exo.gateway.settings import GatewaySettings

    settings = loaded.settings
    access = AccessPolicy(
        hosts=frozenset(settings.http_hosts),
        origins=frozenset(settings.http_origins),
        keys_required=needs_keys(settings),
    )
    return GatewaySettings(
        autoload=settings.autoload,
        body_limit=settings.max_body_mb * MEGABYTE,
        keep_alive=settings.keep_alive,
        stall_timeout=settings.stall_timeout,
        request_timeout=settings.request_timeout,
        context_length=settings.context_length,
        access=access,
        onboarding_file=loaded.paths.onboarding_file,
    )
