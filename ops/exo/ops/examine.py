"""Looks at this machine for `exo doctor`: facts only, `exo.ops.doctor` judges them.

Starts short-lived processes where a look would change this one: MLX and a matrix library stay
loaded once they are in.
"""

import asyncio
import os
import resource
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from exo.broker.binary import find_binary
from exo.broker.context import read_address
from exo.broker.errors import BrokerError, ServerNotFoundError
from exo.broker.monitor import Monitor
from exo.broker.nats_bus import NatsBus
from exo.dashboard.assets import find_asset
from exo.ops.banner import exo_version
from exo.ops.client import NodeClient
from exo.ops.doctor import BrokerFacts, EngineFacts, Facts, MachineFacts, ModelFolder, NodeFacts
from exo.ops.errors import CommandError
from exo.ops.examine_cluster import examine_cluster
from exo.ops.examine_hardware import examine_hardware
from exo.ops.layers import Loaded
from exo.ops.lock import is_held, read_holder
from exo.ops.model_directories import find_model_directories
from exo.ops.node_file import RunningNode, read_node_file
from exo.ops.port_holder import find_port_holder
from exo.ops.settings import Settings, runner_environment
from exo.runners.blas import BlasReport
from exo.services.downloads.inventory import scan
from exo.services.telemetry.probes.disk import read_disk
from exo.services.telemetry.probes.memory import read_memory
from exo.streams.layout import POISON

_PATIENCE = 60.0
"""Seconds for MLX to load; a cold disk takes half of that."""
_ENGINE = "import json, mlx.core as mx; print(json.dumps([mx.__version__, str(mx.default_device())]))"


class _Ready(msgspec.Struct, frozen=True):
    status: str = ""


async def examine(loaded: Loaded) -> Facts:
    """Look at everything at once."""
    paths = loaded.paths
    directories = find_model_directories(loaded.settings, paths)
    broker, engine, node, cluster, hardware = await asyncio.gather(
        _examine_broker(loaded),
        _examine_engine(loaded.settings),
        _examine_node(loaded),
        examine_cluster(loaded),
        examine_hardware(loaded),
    )
    return Facts(
        version=exo_version(),
        settings_warnings=loaded.warnings,
        broker=broker,
        engine=engine,
        machine=_examine_machine(directories.writable[0], paths.store),
        node=node,
        cluster=cluster,
        hardware=hardware,
        data_dir=str(paths.data),
        data_dir_problem=_find_data_dir_problem(paths.data),
        store_size=_measure(paths.store),
        dashboard_built=_is_dashboard_built(),
        models=_examine_models(directories.all),
    )


async def _examine_broker(loaded: Loaded) -> BrokerFacts:
    running = await _examine_running_broker(loaded.paths.store)
    try:
        found = await find_binary(loaded.settings.nats_server)
    except ServerNotFoundError as error:
        return replace(running, problem="; ".join(error.tried))
    return replace(running, version=found.version, path=str(found.path), source=found.source)


async def _examine_running_broker(store: Path) -> BrokerFacts:
    address = read_address(store)
    if address is None:
        return BrokerFacts()
    try:
        health = await Monitor(address.monitor_url).health() if address.monitor_url else None
        async with NatsBus(address.to_settings("exo-doctor")) as bus:
            poisoned = (await bus.stream_info(POISON.name)).messages
    except (BrokerError, OSError) as error:
        return BrokerFacts(running=True, fault=str(error))
    if health is None or health.healthy:
        return BrokerFacts(running=True, poisoned=poisoned)
    return BrokerFacts(running=True, fault=health.error or health.status, poisoned=poisoned)


async def _examine_engine(settings: Settings) -> EngineFacts:
    environment = {**os.environ, **runner_environment(settings)}
    status, output, complaint = await _run_python("-c", _ENGINE, environment=environment)
    if status != 0:
        return EngineFacts(problem=complaint or f"importing MLX ended with status {status}")
    version, device = msgspec.json.decode(output, type=tuple[str, str])
    status, output, complaint = await _run_python("-m", "exo.runners.blas", environment=environment)
    if status != 0:
        return EngineFacts(version=version, device=device, blas_remedy=complaint)
    report = msgspec.json.decode(output, type=BlasReport)
    return EngineFacts(
        version=version, device=device, blas=report.name, blas_path=report.path, blas_remedy=report.remedy
    )


async def _run_python(*arguments: str, environment: Mapping[str, str]) -> tuple[int, bytes, str]:
    """Run this interpreter; gives its status, its output, and the last line of its complaints."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), _PATIENCE)
    except TimeoutError:
        process.kill()
        await process.wait()
        return 1, b"", f"no answer within {_PATIENCE:.0f} s"
    lines = errors.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, output, lines[-1] if lines else ""


async def _examine_node(loaded: Loaded) -> NodeFacts:
    paths = loaded.paths
    if not is_held(paths.lock_file):
        port = loaded.settings.port
        free = _is_free(loaded.settings.host, port)
        return NodeFacts(port=port, port_free=free, port_holder="" if free else find_port_holder(port))
    holder = read_holder(paths.lock_file)
    pid = holder.pid if holder else 0
    node = read_node_file(paths)
    if node is None:
        return NodeFacts(running=True, pid=pid, ready=False)
    return await _ask_node(node)


async def _ask_node(node: RunningNode) -> NodeFacts:
    known = NodeFacts(running=True, pid=node.pid, version=node.version, api_url=node.api_url)
    if not node.api_url:
        return known
    try:
        async with NodeClient(node.api_url) as client:
            answer = await client.get("/ready", _Ready)
    except CommandError as error:
        unready = error.message.startswith("the node answered 503")
        return replace(known, ready=False, problem="" if unready else error.message)
    return replace(known, ready=answer.status == "ready")


def _is_free(host: str, port: int) -> bool:
    if port == 0:
        return True
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        # As the API's own socket does: connections that just ended are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _examine_machine(models: Path, store: Path) -> MachineFacts:
    memory = read_memory(())
    return MachineFacts(
        memory_total=memory.total,
        memory_available=memory.available,
        disk_available=read_disk(models).available,
        store_disk_available=read_disk(store).available,
        open_files=_read_file_limit(),
    )


def _read_file_limit() -> int:
    """The hard limit: a node raises its own up to it. 0 when there is none."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 0 if hard == resource.RLIM_INFINITY else hard


def _find_data_dir_problem(directory: Path) -> str:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if not existing.is_dir():
        return f"{existing} is no directory"
    return "" if os.access(existing, os.W_OK | os.X_OK) else f"{existing} is not writable"


def _measure(directory: Path) -> int:
    try:
        return sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    except OSError:
        # Files come and go below a broker at work; a rough size is all that is asked for.
        return 0


def _is_dashboard_built() -> bool:
    page = find_asset("/")
    return page is not None and page.status == 200


def _examine_models(directories: tuple[Path, ...]) -> tuple[ModelFolder, ...]:
    return tuple(ModelFolder(name=model, size=held.size_bytes) for model, held in scan(directories).items())
