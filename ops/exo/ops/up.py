"""The composition root: one node, from its place in the cluster to its API, and backwards again.

Started by `exo.ops.start` inside the event loop. Order of starting: the API's port, the cluster (which
finds a hub or becomes it), services, HTTP, models. Order of stopping: the cluster hears that this node
is about to, running answers end while clients can still read them, then HTTP stops, then the services
leave and write their last facts, then the cluster is left.
"""

import asyncio
import importlib
import os
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import structlog

from exo.broker.cluster import Cluster
from exo.broker.credentials import Credentials
from exo.gateway.listening import AddressInUseError, bind
from exo.ops.banner import api_url, exo_version, network_api_url
from exo.ops.compose import make_cluster_settings, make_gateway_settings, make_node_settings, needs_keys
from exo.ops.errors import OK, CommandError
from exo.ops.identity import NodeIdentity
from exo.ops.join_line import make_join_line
from exo.ops.layers import Loaded
from exo.ops.leaving import leave_work
from exo.ops.node_cluster import NodeCluster
from exo.ops.node_file import RunningNode, remove_node_file, write_node_file
from exo.ops.port_holder import find_port_holder
from exo.ops.ready import describe_cluster, make_ready_lines
from exo.ops.secret import ClusterSecret
from exo.ops.signals import StopSignals
from exo.services.node import NodeServices
from exo.streams.ids import BootId, new_boot_id
from exo.streams.views import find_idle_node

if TYPE_CHECKING:
    from exo.gateway.edge import Edge

log = structlog.get_logger(__name__)

STOP_PATIENCE: Final = 8.0
"""Seconds that a stop may take, beside what running requests get."""


async def run_node(
    loaded: Loaded, *, identity: NodeIdentity, secret: ClusterSecret, when_ready: Callable[[list[str]], None]
) -> int:
    """Run one node until SIGINT or SIGTERM; gives the exit code.

    `when_ready` gets the lines for the person at the terminal once the asked models serve.
    """
    settings, paths, boot = loaded.settings, loaded.paths, new_boot_id()
    stopping = StopSignals(patience=settings.shutdown_grace + STOP_PATIENCE)
    async with AsyncExitStack() as stack:
        stack.callback(log.info, "exo has stopped")
        # Loading the web framework takes as long as finding the others: both at once.
        loading = asyncio.create_task(asyncio.to_thread(_load_gateway)) if settings.api else None
        listener = _bind(settings.host, settings.port) if settings.api else None
        if listener is not None:
            stack.callback(listener.close)
        port = listener.getsockname()[1] if listener is not None else 0
        cluster = Cluster(
            make_cluster_settings(loaded, identity=identity, boot=boot),
            credentials=Credentials(settings.namespace, secret.text),
        )
        services = NodeServices(
            cluster,
            make_node_settings(loaded, identity=identity, boot=boot, port=port),
            extra_processes=lambda: [cluster.server_pid] if cluster.server_pid is not None else [],
            prober=cluster.peers,
        )
        stopping.on_stop(cluster.begin_leaving)
        stack.push_async_callback(cluster.stop)
        await _until_stopped(cluster.start(services.projection), stopping)
        if stopping.asked:
            return OK
        stack.push_async_callback(services.stop)
        await _until_stopped(services.start(), stopping)
        if stopping.asked:
            return OK
        url = api_url(settings.host, port) if listener is not None else ""
        count_answers: Callable[[], int] = int
        if listener is not None and loading is not None:
            await loading
            from exo.gateway.serve import serve

            app = _make_app(cluster, services, loaded, identity=identity, boot=boot)
            await stack.enter_async_context(serve(app, listener))
            count_answers = app.count_answers
            stopping.on_stop(app.begin_leaving)
        # Answers that run get their grace, and their last words, while HTTP is still up.
        stack.push_async_callback(leave_work, services, count_answers=count_answers, grace=settings.shutdown_grace)
        stack.callback(remove_node_file, paths.node_file)
        _publish_address(loaded, identity, cluster, url=url)
        state = services.projection.state
        returning = [one for one in state.instances.values() if find_idle_node(state, one) is None]
        placed = [instance.model.model_id for instance in returning]

        addresses = cluster.peers.addresses
        join = "" if settings.local else make_join_line(settings.namespace, addresses, closed=secret.closed)

        def tell_ready(models: list[str]) -> None:
            lacks_keys = needs_keys(settings) and not services.projection.state.api_keys
            lines = make_ready_lines(
                url,
                models,
                asked=settings.models,
                placed=placed,
                join=join,
                lacks_keys=lacks_keys,
                network_url=network_api_url(settings.host, port) if url else "",
                cluster=_describe_cluster(cluster),
            )
            when_ready(lines)

        return await _launch_and_wait(url, settings.models, stopping=stopping, when_ready=tell_ready)


def _describe_cluster(cluster: Cluster) -> str:
    report = cluster.report()
    others = sum(one.reached and one.node != report.node for one in report.members)
    hub = next((one.name for one in report.members if one.node == report.hub), report.hub)
    return describe_cluster(report.cluster, others=others, hub=hub)


async def _until_stopped(work: Coroutine[None, None, None], stopping: StopSignals) -> None:
    """Finish `work` unless a signal comes first: a node that finds no hub must still be easy to end."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def _bind(host: str, port: int) -> socket.socket:
    try:
        return bind(host, port)
    except AddressInUseError as error:
        holder = find_port_holder(port) if error.flag == "port" else ""
        by = f" by {holder}" if holder else ""
        remedy = f"choose another {error.flag} with --{error.flag}"
        raise CommandError(f"cannot listen on {host}:{port}: {error.reason}{by}", remedy=remedy) from error


def _load_gateway() -> None:
    importlib.import_module("exo.gateway.app")
    importlib.import_module("exo.gateway.serve")


def _make_app(
    cluster: Cluster, services: NodeServices, loaded: Loaded, *, identity: NodeIdentity, boot: BootId
) -> "Edge":
    from exo.gateway import settings as gateway
    from exo.gateway.app import create_app

    ports = gateway.GatewayPorts(
        states=services.projection,
        gauges=services.gauges,
        placer=services,
        catalog=services.catalog,
        cluster=NodeCluster(cluster, loaded),
        local=services.worker,
    )
    node = gateway.NodeIdentity(id=identity.node, boot=boot, name=loaded.settings.name, version=exo_version())
    return create_app(cluster.bus, ports, node=node, settings=make_gateway_settings(loaded))


def _publish_address(loaded: Loaded, identity: NodeIdentity, cluster: Cluster, *, url: str) -> None:
    node = RunningNode(
        pid=os.getpid(),
        node_id=identity.node,
        name=loaded.settings.name,
        version=exo_version(),
        api_url=url,
        cluster=loaded.settings.namespace,
        cluster_port=cluster.peers.port,
        cluster_addresses=tuple(cluster.peers.addresses),
        started_at=time.time(),
    )
    write_node_file(loaded.paths.node_file, node)


async def _launch_and_wait(
    url: str, models: Sequence[str], *, stopping: StopSignals, when_ready: Callable[[list[str]], None]
) -> int:
    """Bring the asked models up beside a node that serves already; a model that fails leaves the node up."""

    async def launch() -> None:
        when_ready(await _launch(url, models))

    async with asyncio.TaskGroup() as group:
        launching = group.create_task(launch())
        await stopping.wait()
        launching.cancel()
    return OK


async def _launch(url: str, models: Sequence[str]) -> list[str]:
    if not models:
        return []
    from exo.ops.launch import launch_models

    return await launch_models(url, models)
