"""What `exo doctor` concludes about the cluster, and how it looks at network, ports and clocks."""

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from exo.broker.peering import Refusal
from exo.ops.cluster_report import ClusterAnswer, MemberView, Report
from exo.ops.cluster_view import ClusterView
from exo.ops.doctor_cluster import ClusterFacts, check_cluster
from exo.ops.examine_cluster import examine_cluster, find_firewalls, find_offsets, is_local
from exo.ops.findings import Finding
from exo.ops.layers import load_settings
from exo.ops.node_file import RunningNode
from exo.ops.port_holder import find_port_holder, parse_lsof
from exo.ops.secret import new_secret, store_secret
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId

REPORT = Report(
    cluster="lab",
    hub=NodeId("n1"),
    node=NodeId("n1"),
    members=(MemberView(node=NodeId("n1"), name="box"), MemberView(node=NodeId("n2"), name="desk")),
)
HEALTHY = ClusterFacts(answer=ClusterAnswer(report=REPORT), port=52414)
NOBODY = NodeFinding(code="no_other_node", message="no other node was found", remedy="exo up --join a:1")
ALONE = replace(HEALTHY, answer=ClusterAnswer(report=replace(REPORT, members=REPORT.members[:1], findings=(NOBODY,))))


def report(**fields: Any) -> ClusterFacts:
    return replace(HEALTHY, answer=ClusterAnswer(report=replace(REPORT, **fields)))


def refuse(code: Any) -> ClusterFacts:
    refused = Refusal(
        code=code, reason="the reason", by_us=True, node=NodeId("n3"), name="attic", cluster="lab", version="1",
        address="a:1", refused_at=0,
    )  # fmt: skip
    return report(refusals=(refused,))


def test_a_healthy_cluster_has_nothing_to_repair() -> None:
    findings = list(check_cluster(HEALTHY))
    assert [finding.severity for finding in findings] == ["ok"]
    assert findings[0].message == "1 other node reached"


@pytest.mark.parametrize(
    ("facts", "subject", "severity", "message", "remedy"),
    [
        (replace(HEALTHY, closed=False), "cluster secret", "warning", "open", "`exo cluster secret`"),
        (replace(HEALTHY, secret_is_private=False, secret_file="/s"), "cluster secret", "error", "/s", "chmod 600 /s"),
        (replace(HEALTHY, secret_problem="/s: not a secret"), "cluster secret", "error", "/s: not", "cluster join"),
        (replace(HEALTHY, network=False), "network", "warning", "none", "cable"),
        (replace(HEALTHY, port_holder="x (process 7)"), "cluster port", "warning", "taken by x", "--cluster-port"),
        (report(hub=NodeId(""), why="waiting"), "hub", "error", "none: waiting", "exo status"),
        (ALONE, "no other node", "warning", "no other node was found", "exo up --join a:1"),
        (replace(ALONE, firewalls=("ufw",)), "firewall", "warning", "ufw is on", "ufw allow 52413/tcp"),
        (replace(ALONE, firewalls=("ufw",), nats_port=4222), "firewall", "warning", "ufw", "allow 4222/tcp"),
        (replace(ALONE, firewalls=("firewalld",)), "firewall", "warning", "firewalld is on", "5353/udp"),
        (replace(ALONE, firewalls=("macos",)), "firewall", "warning", "macos", "Local Network"),
        (refuse("other_cluster"), "refused", "warning", "attic: the reason", "--namespace"),
        (refuse("secret_mismatch"), "refused", "warning", "attic: the reason", "exo cluster join"),
        (refuse("duplicate_node"), "refused", "warning", "attic: the reason", "node_id"),
        (refuse("version_incompatible"), "refused", "warning", "attic: the reason", "same version"),
        (replace(HEALTHY, offsets={"desk": 3600.0}), "clock", "warning", "desk is 3600 s ahead", "timedatectl"),
        (replace(HEALTHY, offsets={"desk": -31.0}), "clock", "warning", "desk is 31 s behind", "timedatectl"),
        (
            report(findings=(NodeFinding(code="store_full", message="no room", remedy="make room"),)),
            "store full",
            "warning",
            "no room",
            "make room",
        ),
    ],
)  # fmt: skip
def test_every_fault_is_found_with_its_remedy(
    facts: ClusterFacts, subject: str, severity: str, message: str, remedy: str
) -> None:
    found = [one for one in check_cluster(facts) if one.subject == subject and one.severity == severity]
    assert [one for one in found if message in one.message and remedy in one.remedy] != [], found


def test_a_pair_that_refuses_each_other_is_one_finding() -> None:
    facts = refuse("secret_mismatch")
    assert facts.answer is not None
    both = (*facts.answer.report.refusals, replace(facts.answer.report.refusals[0], by_us=False))
    assert [one.subject for one in check_cluster(report(refusals=both))] == ["discovery", "refused"]


def test_a_firewall_is_nobodys_fault_while_nodes_are_reached() -> None:
    assert [one.subject for one in check_cluster(replace(HEALTHY, firewalls=("ufw",)))] == ["discovery"]


def test_a_local_node_needs_no_network() -> None:
    facts = ClusterFacts(local=True, closed=False, network=False)
    assert list(check_cluster(facts)) == [Finding("cluster", "ok", "loopback only (--local)")]


def test_a_local_node_still_says_whom_it_refused() -> None:
    facts = replace(refuse("duplicate_node"), local=True)
    assert [one.subject for one in check_cluster(facts)] == ["cluster", "discovery", "refused"]


@pytest.mark.parametrize(
    ("addresses", "local"),
    [(("127.0.0.1:1", "[::1]:1"), True), (("127.0.0.1:1", "10.0.0.7:1"), False), ((), False)],
)
def test_a_node_that_listens_on_loopback_only_is_known_as_such(addresses: tuple[str, ...], *, local: bool) -> None:
    node = RunningNode(pid=1, node_id=NodeId("n1"), name="box", version="1", api_url="", cluster_addresses=addresses)
    assert is_local(node) is local


def test_small_offsets_are_no_news() -> None:
    assert [one.subject for one in check_cluster(replace(HEALTHY, offsets={"desk": 29.0}))] == ["discovery"]


def make_reading(taken_at: int, age: float) -> dict[str, Any]:
    return {
        "gauge": {"type": "processor", "utilization": 0, "cores": 1},
        "interval": 2,
        "age": age,
        "taken_at": taken_at,
    }


def test_a_clock_an_hour_off_is_seen_from_the_newest_gauge() -> None:
    content = {
        "telemetry": {
            "n1": {"processor": make_reading(1_000_000, 2.0), "older": make_reading(1, 9.0)},
            "n2": {"processor": make_reading(4_600_000, 1.0)},
            "n3": {"processor": make_reading(1_000, 60.0)},
        }
    }
    view = msgspec.convert(content, ClusterView)
    assert find_offsets(view, now=1002.0) == {"n1": 0.0, "n2": 3599.0}


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("etc/ufw/ufw.conf", "# x\nENABLED=yes\n", ["ufw"]),
        ("etc/ufw/ufw.conf", "ENABLED=no\n", []),
        ("run/firewalld/socket", "", ["firewalld"]),
        ("etc/other", "", []),
    ],
)
def test_firewalls_are_seen(tmp_path: Path, file: str, text: str, found: list[str]) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    assert find_firewalls(tmp_path, platform="linux") == found
    assert find_firewalls(tmp_path, platform="darwin") == ["macos"]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_who_holds_a_port_is_named(family: socket.AddressFamily) -> None:
    with socket.socket(family) as listener:
        listener.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        port = listener.getsockname()[1]
        assert find_port_holder(port) == ""
        listener.listen()
        assert f"(process {os.getpid()})" in find_port_holder(port)


def test_lsof_is_read() -> None:
    assert parse_lsof("p4711\ncnginx\nf6\n") == "nginx (process 4711)"
    assert parse_lsof("") == ""


async def test_a_machine_without_a_node_can_be_examined(tmp_path: Path) -> None:
    loaded = load_settings({"data_dir": tmp_path, "cluster_port": 1}, {})
    facts = await examine_cluster(loaded)
    assert (facts.answer, facts.closed, facts.port_holder) == (None, False, "")
    store_secret(loaded.paths, new_secret())
    loaded.paths.secret_file.chmod(0o644)
    facts = await examine_cluster(loaded)
    assert (facts.closed, facts.secret_is_private) == (True, False)
    loaded.paths.secret_file.write_text("nonsense")
    assert "not a cluster secret" in (await examine_cluster(loaded)).secret_problem
