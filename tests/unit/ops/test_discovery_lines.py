"""What `exo status` says about how nodes found each other."""

from typing import Any

import pytest
from msgspec.structs import replace

from exo.broker.cluster_report import MethodReport
from exo.broker.findings import DEFAULT_NAMES
from exo.broker.peering import Attempt, BadAddress, Refusal, Stranger
from exo.ops.banner import exo_version
from exo.ops.cluster_report import ClusterAnswer, MemberView, Report
from exo.ops.discovery_lines import describe_discovery, summarize_cluster
from exo.streams.findings import NodeFinding
from exo.streams.ids import NodeId, SessionId
from exo.streams.merges import Dropped, Merge

NOW = 1_000.0
REMEDY = "`exo cluster join SECRET` on this machine; `exo cluster secret` on attic prints it"


def describe(*merges: Merge, **fields: Any) -> list[str]:
    report = replace(Report(cluster=exo_version(), hub=NodeId("n1")), **fields)
    return describe_discovery(ClusterAnswer(report=report, merges=merges), now=NOW)


def attempt(address: str, outcome: str, *, source: Any = "bootstrap", failures: int = 0) -> Attempt:
    return Attempt(address=address, sources=(source,), outcome=outcome, failures=failures, detail="no route to host")


def refusal(code: Any, *, by_us: bool = True, times: int = 1) -> Refusal:
    return Refusal(
        code=code, reason="it has another secret", by_us=by_us, node=NodeId("n3"), name="attic", cluster="lab",
        version="1", address="10.0.0.3:52414", refused_at=940_000, times=times,
    )  # fmt: skip


def test_every_method_says_how_it_went() -> None:
    zeroconf = MethodReport(method="zeroconf", state="running", seen=2)
    listed = MethodReport(method="bootstrap", state="tried", seen=3)
    attempts = (attempt("a:1", "connected"), attempt("b:1", "refused", failures=1), attempt("c:1", "untried"))
    (first, *_) = describe(methods=(zeroconf, listed), attempts=attempts)
    assert first == "discovery: zeroconf running, sees 2; by address 1 of 3 reached"
    failed = MethodReport(method="zeroconf", state="failed", detail="no interface")
    assert describe(methods=(failed,)) == ["discovery: zeroconf failed: no interface"]
    assert describe(methods=(MethodReport(method="zeroconf", state="off"),)) == ["discovery: zeroconf off"]


def test_who_saw_nobody_is_told_what_to_type() -> None:
    alone = NodeFinding(code="no_other_node", message="no other node was found", remedy="exo up --join a:1")
    assert describe(findings=(alone,)) == ["no other node was found; exo up --join a:1"]


def test_a_refusal_is_told_once() -> None:
    finding = NodeFinding(code="secret_mismatch", message="it has another secret")
    assert len(describe(refusals=(refusal("secret_mismatch"),), findings=(finding,))) == 1


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"refusals": (refusal("secret_mismatch"),)},
            "refused attic at 10.0.0.3:52414 (1m00s ago): it has another secret; " + REMEDY,
        ),
        (
            {"refusals": (refusal("secret_mismatch", by_us=False, times=3),)},
            "refused by attic at 10.0.0.3:52414 (1m00s ago, 3 times): it has another secret; " + REMEDY,
        ),
        (
            {"attempts": (attempt("a:1", "timed_out", failures=4),)},
            "a:1 not reached, 4 times, timed out: no route to host",
        ),
        ({"bad_addresses": (BadAddress("a:b:c", "no port"),)}, "not an address, skipped: 'a:b:c': no port"),
        (
            {"findings": (NodeFinding(code="c", message="the disk is full", remedy="make room"),)},
            "the disk is full; make room",
        ),
    ],
)
def test_nobody_is_ignored_in_silence(fields: dict[str, Any], line: str) -> None:
    assert line in describe(**fields)


def test_who_was_let_in_later_is_no_news() -> None:
    member = MemberView(node=NodeId("n3"), name="attic")
    assert describe(refusals=(refusal("secret_mismatch"),), members=(member,)) == []
    assert len(describe(refusals=(refusal("secret_mismatch"),), members=(replace(member, reached=False),))) == 1


def test_a_refusal_that_ended_an_attempt_is_told_once() -> None:
    refused = attempt("10.0.0.3:52414", "secret_mismatch", failures=2)
    assert len(describe(refusals=(refusal("secret_mismatch"),), attempts=(refused,))) == 1 + 1


def test_a_stranger_is_named_with_what_would_join_it() -> None:
    stranger = Stranger(
        node=NodeId("n3"), name="attic", cluster="0.0.9", version="0.0.9", address="10.0.0.3:52414", seen_at=0
    )
    (line,) = describe(strangers=(stranger,))
    assert "attic at 10.0.0.3:52414, version 0.0.9, is of cluster '0.0.9'" in line
    assert line.endswith(DEFAULT_NAMES), "a name that is a version is nothing to type"
    (line,) = describe(strangers=(replace(stranger, cluster="my lab"),))
    assert line.endswith("to join it: exo up --namespace 'my lab'")
    member = MemberView(node=NodeId("n3"), name="attic")
    assert describe(strangers=(stranger,), members=(member,)) == []


def test_a_pair_that_refuses_each_other_is_one_line() -> None:
    (line,) = describe(refusals=(refusal("secret_mismatch"), refusal("secret_mismatch", by_us=False, times=3)))
    assert line.startswith("refused attic at 10.0.0.3:52414 (1m00s ago, 3 times)")


def test_the_copy_of_a_member_is_still_told() -> None:
    member = MemberView(node=NodeId("n3"), name="attic")
    assert len(describe(refusals=(refusal("duplicate_node"),), members=(member,))) == 1


def test_addresses_of_a_node_that_is_reached_have_not_failed() -> None:
    through = replace(attempt("b:1", "timeout", source="member", failures=3), node=NodeId("n3"))
    member = MemberView(node=NodeId("n3"), name="attic")
    assert describe(attempts=(through,), members=(member,)) == ["discovery: through members 1 of 1 reached"]
    assert len(describe(attempts=(through,), members=(replace(member, reached=False),))) == 2


@pytest.mark.parametrize("code", ["same_node", "connected"])
def test_what_is_in_order_is_not_mentioned(code: str) -> None:
    assert describe(refusals=(refusal(code),)) == []


def test_a_merge_says_what_was_dropped() -> None:
    dropped = Dropped(kind="task", id="t1", name="", reason="its node was in the other cluster")
    merge = Merge(session=SessionId("s1"), at=970_000, adopted=("i1",), dropped=(dropped,), more_dropped=2)
    assert describe(merge) == [
        "session s1 was merged into this one 30s ago: 1 kept, 3 dropped",
        "dropped task t1: its node was in the other cluster",
    ]


def test_many_lines_of_one_kind_are_counted() -> None:
    bad = tuple(BadAddress(f"{number}", "no port") for number in range(20))
    lines = describe(bad_addresses=bad)
    assert len(lines) == 9
    assert lines[-1] == "and 12 more: `exo status --json`"


def test_the_summary_is_honest_about_an_open_cluster() -> None:
    report = Report(cluster="lab", hub=NodeId("n1"))
    assert summarize_cluster(report, names={"n1": "desk"}) == (
        "cluster lab (open, `exo cluster secret` closes it), hub desk"
    )
    alone = Report(cluster="lab", closed=True, why="waiting for desk")
    assert summarize_cluster(alone, names={}) == "cluster lab (closed), no hub: waiting for desk"
