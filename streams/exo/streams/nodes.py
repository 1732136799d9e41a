"""What the cluster knows of its machines: identity kept apart from liveness."""

import msgspec

from exo.streams.downloads import ModelReport
from exo.streams.ids import BootId, NodeId, RunnerId, TaskId
from exo.streams.instances import RunnerStatus


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a machine says of itself when it joins."""

    name: str
    version: str
    operating_system: str = ""
    os_version: str = ""
    os_build: str = ""
    """The build, where one version has several: RDMA wants the same one on all Macs."""
    machine: str = ""
    """The model of the computer, `Mac15,9` for example."""
    chip: str = ""
    cores: int = 0
    memory_total: int = 0
    backends: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    api_port: int = 0
    worker: bool = True
    """False for `--no-worker`: never placed on."""


class RunnerReport(msgspec.Struct, frozen=True, kw_only=True):
    """One runner as its own node sees it."""

    runner: RunnerId
    status: RunnerStatus
    tasks: tuple[TaskId, ...] = ()


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that has ever joined. `since` is Unix time in ms of the last change of `online`."""

    id: NodeId
    boot: BootId
    facts: NodeFacts
    online: bool
    since: int
    cause: str = ""
    """Why the node is offline: `left`, `timed_out`."""
    models: tuple[ModelReport, ...] = ()
    strays: tuple[RunnerReport, ...] = ()
    """Runners that live on it although State knows no instance of theirs: they end soon, unless it is placed."""
    draining: bool = False
    """Somebody wants it empty: it finishes what it has and gets nothing new. Ends when the node starts anew."""
