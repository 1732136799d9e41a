"""The composition root: one node, from its broker to its API, and backwards again.

Started by `exo.ops.start` inside the event loop. Order of starting: broker, services, HTTP, models.
Order of stopping: running answers end while clients can still read them, then HTTP stops, then the
services leave and write their last facts, then the broker goes. A second signal ends all at once;
the children notice by their pipes.
"""

import asyncio
import importlib
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog

from exo.broker.context import make_address, remove_address, write_address
from exo.broker.credentials import Credentials
from exo.broker.hub import Hub, HubSettings
from exo.ops.backends import find_backends
from exo.ops.banner import api_url, exo_version
from exo.ops.errors import FAILED, OK, CommandError
from exo.ops.layers import Loaded
from exo.ops.model_directories import find_model_directories
from exo.ops.node_file import RunningNode, remove_node_file, write_node_file
from exo.ops.paths import Paths
from exo.ops.ready import make_ready_lines
from exo.ops.settings import Settings
from exo.services.node import NodeServices
from exo.services.settings import EngineSettings, NodeSettings
from exo.streams.ids import BootId, NodeId, new_boot_id

if TYPE_CHECKING:
    from exo.gateway.edge import Edge
    from exo.gateway.settings import GatewaySettings

log = structlog.get_logger(__name__)

MEGABYTE = 1_000_000


async def run_node(loaded: Loaded, *, node_id: NodeId, when_ready: Callable[[list[str]], None]) -> int:
    """Run one node until SIGINT or SIGTERM; gives the exit code.

    `when_ready` gets the lines for the person at the terminal once the asked models serve.
    """
    stopping = _listen_for_signals()
    settings, paths, boot = loaded.settings, loaded.paths, new_boot_id()
    async with AsyncExitStack() as stack:
        stack.callback(log.info, "exo has stopped")
        # Loading the web framework takes as long as starting the broker: both at once.
        loading = asyncio.create_task(asyncio.to_thread(_load_gateway)) if settings.api else None
        stack.callback(remove_address, paths.store)
        hub = await stack.enter_async_context(_make_hub(settings, paths, node_id))
        listener = None
        if loading is not None:
            await loading
            listener = _bind(settings)
            stack.callback(listener.close)
        port = listener.getsockname()[1] if listener is not None else 0
        services = NodeServices(
            hub.bus,
            _node_settings(settings, paths, node_id, boot=boot, port=port),
            extra_processes=lambda: [hub.server.pid],
        )
        stack.push_async_callback(services.stop, grace=settings.shutdown_grace)
        await services.start()
        url = api_url(settings.host, port) if listener is not None else ""
        if listener is not None:
            from exo.gateway.serve import serve

            app = _make_app(hub, services, loaded, node_id=node_id, boot=boot)
            await stack.enter_async_context(serve(app, listener))
        # Answers that run get their grace, and their last words, while HTTP is still up.
        stack.push_async_callback(services.worker.stop, grace=settings.shutdown_grace)
        stack.callback(remove_node_file, paths.node_file)
        _publish_address(settings, paths, node_id, url=url)
        placed = [instance.model.model_id for instance in services.projection.state.instances.values()]

        def tell_ready(models: list[str]) -> None:
            when_ready(make_ready_lines(url, models, asked=settings.models, placed=placed))

        return await _launch_and_wait(settings, url, stopping=stopping, when_ready=tell_ready)


def _bind(settings: Settings) -> socket.socket:
    from exo.gateway.serve import AddressInUseError, bind

    try:
        return bind(settings.host, settings.port)
    except AddressInUseError as error:
        raise CommandError(str(error)) from error


def _listen_for_signals() -> asyncio.Event:
    stopping = asyncio.Event()

    def stop(name: str) -> None:
        if stopping.is_set():
            log.warning("a second signal: stopping at once", signal=name)
            os._exit(FAILED)
        log.info("stopping; a second signal ends at once", signal=name)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)
    return stopping


def _load_gateway() -> None:
    importlib.import_module("exo.gateway.app")
    importlib.import_module("exo.gateway.serve")


def _make_hub(settings: Settings, paths: Paths, node_id: NodeId) -> Hub:
    hub_settings = HubSettings(
        directory=paths.store, name=node_id, port=settings.nats_port, binary=settings.nats_server
    )
    credentials = Credentials(cluster=node_id)

    def tell(hub: Hub) -> None:
        address = make_address(
            hub.url,
            credentials=credentials,
            directory=paths.store,
            monitor_url=hub.server.monitor_url,
            pid=hub.server.pid,
        )
        write_address(paths.store, address)

    return Hub(hub_settings, credentials=credentials, on_ready=tell)


def _node_settings(settings: Settings, paths: Paths, node_id: NodeId, *, boot: BootId, port: int) -> NodeSettings:
    directories = find_model_directories(settings, paths)
    return NodeSettings(
        node=node_id,
        boot=boot,
        name=settings.name,
        version=exo_version(),
        model_directories=directories.writable,
        read_only_directories=directories.read_only,
        data_directory=paths.data,
        memory_budget=settings.memory_available_mb * MEGABYTE,
        api_port=port,
        backends=find_backends(),
        worker=settings.worker,
        offline=settings.offline,
        max_retries=settings.max_instance_retries,
        engine=EngineSettings(
            max_batch=settings.max_concurrent_requests,
            max_queue=settings.max_queued_requests,
            prefill_step=settings.prefill_step,
            blas_threads=settings.blas_threads,
            dense_weights={"auto": None, "on": True, "off": False}[settings.dense_weights],
            script=settings.scripted,
        ),
    )


def _make_app(hub: Hub, services: NodeServices, loaded: Loaded, *, node_id: NodeId, boot: BootId) -> "Edge":
    from exo.gateway.app import create_app
    from exo.gateway.settings import GatewayPorts, NodeIdentity

    ports = GatewayPorts(
        states=services.projection,
        gauges=services.gauges,
        placer=services,
        catalog=services.catalog,
    )
    identity = NodeIdentity(id=node_id, boot=boot, name=loaded.settings.name, version=exo_version())
    return create_app(hub.bus, ports, node=identity, settings=_gateway_settings(loaded))


def _gateway_settings(loaded: Loaded) -> "GatewaySettings":
    from exo.gateway.auth import AccessPolicy
    from exo.gateway.settings import GatewaySettings

    settings = loaded.settings
    return GatewaySettings(
        autoload=settings.autoload,
        body_limit=settings.max_body_mb * MEGABYTE,
        keep_alive=settings.keep_alive,
        stall_timeout=settings.stall_timeout,
        request_timeout=settings.request_timeout,
        context_length=settings.context_length,
        access=AccessPolicy(hosts=frozenset(settings.http_hosts), origins=frozenset(settings.http_origins)),
        onboarding_file=loaded.paths.cache / "onboarding_complete",
    )


def _publish_address(settings: Settings, paths: Paths, node_id: NodeId, *, url: str) -> None:
    node = RunningNode(
        pid=os.getpid(),
        node_id=node_id,
        name=settings.name,
        version=exo_version(),
        api_url=url,
        started_at=time.time(),
    )
    write_node_file(paths.node_file, node)


async def _launch_and_wait(
    settings: Settings, url: str, *, stopping: asyncio.Event, when_ready: Callable[[list[str]], None]
) -> int:
    """Bring the asked models up beside a node that serves already; a model that fails leaves the node up."""

    async def launch() -> None:
        when_ready(await _launch(url, settings.models))

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
