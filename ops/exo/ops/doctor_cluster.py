"""What `exo doctor` concludes about the cluster: found, closed, reachable, of one time. Pure: facts in, findings out.

`exo.ops.doctor` puts these among its findings; `exo.ops.examine_cluster` collects the facts.
"""

from collections.abc import Iterator, Mapping

import msgspec

from exo.ops.cluster_report import ClusterAnswer
from exo.ops.findings import Finding
from exo.ops.terminal import show_count

MOST_OFFSET = 30.0
"""Seconds between two clocks; leases and deadlines are measured, but times in logs and State would lie."""
_OPEN_PORTS = {
    "ufw": "sudo ufw allow {port}/tcp && sudo ufw allow {nats_port}/tcp && sudo ufw allow 5353/udp",
    "firewalld": "sudo firewall-cmd --permanent --add-port={port}/tcp --add-port={nats_port}/tcp --add-port=5353/udp"
    " && sudo firewall-cmd --reload",
    "macos": "System Settings > Privacy & Security > Local Network: allow the terminal, or exo",
}


class ClusterFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`answer` is None when no node could be asked. `offsets` are seconds a node's clock is ahead of ours, by name."""

    answer: ClusterAnswer | None = None
    local: bool = False
    closed: bool = True
    secret_problem: str = ""
    secret_file: str = ""
    secret_is_private: bool = True
    network: bool = True
    firewalls: tuple[str, ...] = ()
    offsets: Mapping[str, float] = {}
    port: int = 0
    nats_port: int = 0
    port_holder: str = ""
    """Who has the cluster port while no node runs."""


def check_cluster(facts: ClusterFacts) -> Iterator[Finding]:
    """Give the findings, in the order a person would look."""
    yield from _check_secret(facts)
    if facts.local:
        yield Finding("cluster", "ok", "loopback only (--local)")
    else:
        yield from _check_network(facts)
    if facts.answer is not None:
        yield from _check_report(facts, facts.answer)
    yield from _check_clocks(facts.offsets)


def _check_secret(facts: ClusterFacts) -> Iterator[Finding]:
    if facts.secret_problem:
        remedy = "`exo cluster join SECRET`, with the secret of the other machines"
        yield Finding("cluster secret", "error", facts.secret_problem, remedy)
    if not facts.secret_is_private:
        yield Finding(
            "cluster secret", "error", f"{facts.secret_file} can be read by others", f"`chmod 600 {facts.secret_file}`"
        )
    if not facts.closed and not facts.local:
        yield Finding(
            "cluster secret", "warning", "the cluster is open: whoever reaches it may join", "`exo cluster secret`"
        )


def _check_network(facts: ClusterFacts) -> Iterator[Finding]:
    if not facts.network:
        yield Finding("network", "warning", "none: no other machine can be reached", "connect a cable or join a Wi-Fi")
    if facts.port_holder:
        yield Finding(
            "cluster port",
            "warning",
            f"{facts.port} is taken by {facts.port_holder}",
            "stop that one, or choose another with --cluster-port",
        )


def _check_report(facts: ClusterFacts, answer: ClusterAnswer) -> Iterator[Finding]:
    report = answer.report
    if not report.hub:
        yield Finding("hub", "error", f"none: {report.why or 'nobody answers'}", "`exo status` says what is tried")
    if report.reached:
        yield Finding("discovery", "ok", f"{show_count(len(report.reached), 'other node')} reached")
    else:
        yield from _suggest_firewalls(facts)
    for finding in report.further_findings:
        yield Finding(finding.code.replace("_", " "), "warning", finding.message, finding.remedy)
    for refusal in report.standing_refusals:
        remedy = report.choose_remedy(refusal)
        if remedy:
            yield Finding("refused", "warning", f"{refusal.name or refusal.address}: {refusal.reason}", remedy)


def _suggest_firewalls(facts: ClusterFacts) -> Iterator[Finding]:
    for firewall in facts.firewalls:
        # The message broker takes the port below unless a setting says otherwise.
        remedy = _OPEN_PORTS[firewall].format(port=facts.port, nats_port=facts.nats_port or facts.port - 1)
        yield Finding("firewall", "warning", f"{firewall} is on, and may keep other nodes out", remedy)


def _check_clocks(offsets: Mapping[str, float]) -> Iterator[Finding]:
    for name, offset in offsets.items():
        if abs(offset) > MOST_OFFSET:
            direction = "ahead of" if offset > 0 else "behind"
            yield Finding(
                "clock",
                "warning",
                f"{name} is {abs(offset):.0f} s {direction} this machine",
                "turn time synchronisation on there: `sudo timedatectl set-ntp true`, on a Mac in Date & Time",
            )
