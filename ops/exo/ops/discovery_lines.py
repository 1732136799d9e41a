"""How nodes found each other, in words: the lines of `exo status` and `exo cluster show`. Pure text.

Whoever was seen and did not join is named with the reason; what to type when nobody was seen is the
node's own finding.
"""

import shlex
from collections.abc import Iterator

from exo.broker.findings import DEFAULT_NAMES
from exo.broker.peering import Attempt, Refusal, Stranger
from exo.ops.cluster_report import ClusterAnswer, Report
from exo.ops.terminal import show_duration
from exo.streams.merges import Merge

_MOST = 8
"""Lines of one kind; what is beyond them is counted."""
_LISTS = {"bootstrap": "by address", "member": "through members", "remembered": "from earlier runs"}


def describe_discovery(answer: ClusterAnswer, *, now: float) -> list[str]:
    """Give the lines, most important first. `now` is Unix time in seconds."""
    report = answer.report
    inside = {member.node for member in report.reached}
    return [
        *_describe_methods(report),
        *_limit([f"{one.message}; {one.remedy}" if one.remedy else one.message for one in report.further_findings]),
        *_limit([_describe_refusal(one, report, now=now) for one in report.standing_refusals]),
        *_limit([_describe_stranger(one, report) for one in report.strangers if one.node not in inside]),
        *_limit([_describe_failure(one) for one in report.attempts if _has_failed(one, report)]),
        *_limit([f"not an address, skipped: {one.text!r}: {one.reason}" for one in report.bad_addresses]),
        *_limit([line for merge in answer.merges for line in _describe_merge(merge, now)]),
    ]


def _describe_methods(report: Report) -> Iterator[str]:
    words: list[str] = []
    inside = {member.node for member in report.reached}
    for method in report.methods:
        if method.method not in _LISTS:
            detail = f": {method.detail}" if method.detail else f", sees {method.seen}" if method.state != "off" else ""
            words.append(f"{method.method} {method.state}{detail}")
    for source, name in _LISTS.items():
        dialled = [one for one in report.attempts if source in one.sources]
        if dialled:
            connected = sum(one.outcome == "connected" or one.node in inside for one in dialled)
            words.append(f"{name} {connected} of {len(dialled)} reached")
    if words:
        yield f"discovery: {'; '.join(words)}"


def _describe_refusal(refusal: Refusal, report: Report, *, now: float) -> str:
    who = f"{refusal.name or refusal.node or 'a node'} at {refusal.address}"
    times = f", {refusal.times} times" if refusal.times > 1 else ""
    ago = show_duration(now - refusal.refused_at / 1000)
    remedy = report.choose_remedy(refusal)
    do = f"; {remedy}" if remedy else ""
    turned = f"refused {who}" if refusal.by_us else f"refused by {who}"
    return f"{turned} ({ago} ago{times}): {refusal.reason}{do}"


def _describe_stranger(stranger: Stranger, report: Report) -> str:
    who = f"{stranger.name} at {stranger.address}, version {stranger.version}"
    is_named = stranger.cluster != stranger.version
    do = f"to join it: {shlex.join(('exo', 'up', '--namespace', stranger.cluster))}" if is_named else DEFAULT_NAMES
    return f"{who}, is of cluster {stranger.cluster!r}, this is {report.cluster!r}; {do}"


def _has_failed(attempt: Attempt, report: Report) -> bool:
    """Whether nobody answered; what a refusal says already is not told twice."""
    told = {refusal.code for refusal in report.refusals}
    inside = {member.node for member in report.reached}
    if attempt.node in inside or attempt.failures == 0:
        return False
    return attempt.outcome not in {"connected", "untried", *told}


def _describe_failure(attempt: Attempt) -> str:
    detail = f": {attempt.detail}" if attempt.detail else ""
    return f"{attempt.address} not reached, {attempt.failures} times, {attempt.outcome.replace('_', ' ')}{detail}"


def _describe_merge(merge: Merge, now: float) -> Iterator[str]:
    ago = show_duration(now - merge.at / 1000)
    lost = len(merge.dropped) + merge.more_dropped
    yield f"session {merge.session} was merged into this one {ago} ago: {len(merge.adopted)} kept, {lost} dropped"
    for item in merge.dropped:
        yield f"dropped {item.kind} {item.name or item.id}: {item.reason}"


def _limit(lines: list[str]) -> list[str]:
    shown = lines[:_MOST]
    return shown if len(lines) <= _MOST else [*shown, f"and {len(lines) - _MOST} more: `exo status --json`"]


def summarize_cluster(report: Report, *, names: dict[str, str]) -> str:
    """Give one line: name, open or closed, who is hub. `names` are those of the nodes, by id."""
    closed = "closed" if report.closed else "open, `exo cluster secret` closes it"
    hub = f"hub {names.get(report.hub, report.hub)}" if report.hub else f"no hub: {report.why}"
    return f"cluster {report.cluster} ({closed}), {hub}"
