"""What a node says is wrong with the cluster."""

import pytest
from msgspec.structs import replace

from exo.broker.findings import DEFAULT_NAMES, choose_remedy, find_in_peers, find_other_versions, merge_pairs
from exo.broker.hello import Hello, Position
from exo.broker.peering import DiscoveryState, PeersReport, PeersSettings, Refusal, RefusalCode, Unadmitted
from exo.streams.findings import NodeFinding
from exo.streams.ids import BootId, NodeId


def member(version: str) -> Hello:
    return Hello(
        node=NodeId("b"),
        boot=BootId("1"),
        name="studio",
        version=version,
        started_at=0,
        role="following",
        position=Position(),
    )


def test_members_of_another_version_are_named() -> None:
    (finding,) = find_other_versions("0.2.0", [member("0.2.0"), member("0.1.0")])
    assert finding.code == "mixed_versions"
    assert "studio runs 0.1.0" in finding.message
    assert list(find_other_versions("0.2.0", [member("0.2.0")])) == []


def refusal(code: RefusalCode, *, cluster: str = "lab", by_us: bool = True, at: int = 1) -> Refusal:
    return Refusal(
        code=code, reason="why", by_us=by_us, node=NodeId("b"), name="studio", cluster=cluster, version="0.1.0",
        address="10.0.0.2:1", refused_at=at,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "closed", "remedy"),
    [
        (refusal("secret_mismatch"), True, "join SECRET` on studio; `exo cluster secret` on this machine"),
        (refusal("secret_mismatch"), False, "join SECRET` on this machine; `exo cluster secret` on studio"),
        (refusal("other_cluster"), False, "start both with the same --namespace"),
        (refusal("other_cluster", cluster="0.1.0"), False, DEFAULT_NAMES),
        (refusal("version_incompatible"), False, "the same version"),
        (refusal("duplicate_node"), False, "node_id"),
    ],
)
def test_a_refusal_says_on_which_machine_to_do_what(refused: Refusal, *, closed: bool, remedy: str) -> None:
    assert remedy in choose_remedy(refused, cluster="0.2.0", version="0.2.0", closed=closed)
    assert choose_remedy(refused, cluster="mine", version="0.2.0", closed=closed) != DEFAULT_NAMES


def test_a_pair_is_merged_and_told_as_ours_whichever_is_newer() -> None:
    for at in (1, 3):
        ours, theirs = refusal("other_cluster", at=at), refusal("other_cluster", by_us=False, at=2)
        (merged,) = merge_pairs([ours, theirs])
        assert (merged.by_us, merged.refused_at) == (True, max(at, 2))
    assert len(merge_pairs([refusal("other_cluster"), refusal("secret_mismatch")])) == 2


def find(report: PeersReport, *, cluster: str = "0.2.0", closed: bool = False) -> dict[str, NodeFinding]:
    settings = PeersSettings(node=NodeId("a"), boot=BootId("1"), name="desk", cluster=cluster, version="0.2.0")
    found = find_in_peers(report, settings, alone=True, closed=closed, addresses=("10.0.0.1:1",))
    return {one.code: one for one in found}


def test_who_found_nobody_is_given_the_whole_command() -> None:
    report = PeersReport(
        port=1, discovery=DiscoveryState("running"), attempts=(), refusals=(), strangers=(), bad_addresses=(),
        counters={},
    )  # fmt: skip
    assert find(report)["no_other_node"].remedy.endswith(": exo up --join 10.0.0.1:1")
    remedy = find(report, cluster="my lab", closed=True)["no_other_node"].remedy
    assert remedy.endswith(": exo cluster join SECRET && exo up --namespace 'my lab' --join 10.0.0.1:1")
    failed = replace(report, discovery=DiscoveryState("failed", "no multicast"))
    assert "--namespace lab" in find(failed, cluster="lab")["discovery_failed"].remedy
    outside = replace(report, unadmitted=(Unadmitted(NodeId("b"), "studio", "RuntimeError: x"),))
    assert "studio in: RuntimeError: x" in find(outside)["peer_not_admitted"].message
