"""What `exo doctor` concludes, and that it looks at a real machine."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from exo.ops import cli
from exo.ops.doctor import (
    GIB,
    BrokerFacts,
    EngineFacts,
    Facts,
    MachineFacts,
    ModelFolder,
    NodeFacts,
    diagnose,
)
from exo.ops.examine import examine
from exo.ops.findings import Finding
from exo.ops.layers import load_settings

HEALTHY = Facts(
    version="1.0",
    broker=BrokerFacts(version="2.15.1", path="/bin/nats-server", source="PATH"),
    engine=EngineFacts(version="0.32", device="cpu", blas="openblas", blas_path="/lib/x"),
    machine=MachineFacts(memory_total=16 * GIB, memory_available=8 * GIB, disk_available=99 * GIB, open_files=65535),
    data_dir="/d",
    models=(ModelFolder(name="m", size=1000),),
)


def find(facts: Facts, subject: str) -> Finding:
    return next(finding for finding in diagnose(facts) if finding.subject == subject)


def test_a_healthy_machine_has_nothing_to_repair() -> None:
    assert {finding.severity for finding in diagnose(HEALTHY)} == {"ok"}


@pytest.mark.parametrize(
    ("facts", "subject", "severity", "part"),
    [
        (replace(HEALTHY, settings_problem="EXO_PORT = 'x'"), "settings", "error", "EXO_PORT"),
        (replace(HEALTHY, settings_warnings=("EXO_PROT does nothing",)), "settings", "warning", "EXO_PROT"),
        (replace(HEALTHY, data_dir_problem="/d is not writable"), "data directory", "error", "not writable"),
        (replace(HEALTHY, broker=BrokerFacts(problem="PATH: nothing there")), "nats-server", "error", "PATH"),
        (
            replace(HEALTHY, broker=replace(HEALTHY.broker, running=True, fault="disk full")),
            "message broker",
            "error",
            "disk full",
        ),
        (replace(HEALTHY, broker=replace(HEALTHY.broker, poisoned=3)), "poison", "warning", "3 messages"),
        (replace(HEALTHY, engine=EngineFacts(problem="No module named 'mlx'")), "MLX", "error", "exo/scripted"),
        (
            replace(HEALTHY, engine=replace(HEALTHY.engine, blas="bundled", blas_remedy="install OpenBLAS")),
            "matrix library",
            "warning",
            "25 times",
        ),
        (replace(HEALTHY, machine=replace(HEALTHY.machine, memory_available=GIB)), "memory", "warning", "1.1 GB"),
        (replace(HEALTHY, machine=replace(HEALTHY.machine, disk_available=GIB)), "disk", "warning", "1.1 GB"),
        (replace(HEALTHY, machine=replace(HEALTHY.machine, open_files=256)), "open files", "warning", "256"),
        (replace(HEALTHY, machine=replace(HEALTHY.machine, store_disk_available=9)), "store disk", "error", "9 B free"),
        (replace(HEALTHY, node=NodeFacts(port=80, port_free=False)), "port", "error", "80 is taken by another program"),
        (
            replace(HEALTHY, node=NodeFacts(port=80, port_free=False, port_holder="nginx (process 7)")),
            "port",
            "error",
            "80 is taken by nginx (process 7)",
        ),
        (replace(HEALTHY, node=NodeFacts(running=True, pid=7, ready=False)), "node", "warning", "not ready"),
        (replace(HEALTHY, node=NodeFacts(running=True, pid=7, problem="no answer")), "node", "error", "no answer"),
        (replace(HEALTHY, node=NodeFacts(running=True, version="0.9", ready=True)), "version", "warning", "0.9"),
        (replace(HEALTHY, dashboard_built=False), "dashboard", "warning", "not built"),
        (replace(HEALTHY, models=(ModelFolder(name="m", missing=("a.bin",)),)), "model m", "warning", "a.bin"),
    ],
)
def test_every_fault_is_found_with_a_remedy(facts: Facts, subject: str, severity: str, part: str) -> None:
    finding = find(facts, subject)
    assert finding.severity == severity
    assert part in finding.message
    assert len(finding.remedy) > 5


async def test_a_real_machine_can_be_examined(tmp_path: Path) -> None:
    facts = await examine(load_settings({"data_dir": tmp_path, "port": 0}, {}))
    assert facts.broker.problem == ""
    assert facts.engine.problem == ""
    assert facts.machine.memory_total > GIB
    assert facts.machine.disk_available > 0
    assert (facts.node.running, facts.models, facts.data_dir_problem) == (False, (), "")


def test_an_error_is_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.toml").write_text("prot = 1")
    assert cli.run(["doctor", "--data-dir", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "error   settings:" in out
    assert "nats-server" in out
