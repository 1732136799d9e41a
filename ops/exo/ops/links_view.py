"""What `exo status --links` shows: the links of `GET /state/topology` as rows. Pure."""

import msgspec

from exo.ops.terminal import show_bytes, show_duration

LINK_COLUMNS = ("FROM", "TO", "KIND", "INTERFACE", "LATENCY", "BANDWIDTH", "STATE", "AGE", "FROM ADDRESS", "TO ADDRESS")


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a node that is shown."""

    name: str


class LinkView(msgspec.Struct, frozen=True, kw_only=True):
    """`bandwidth` in bytes a second, 0 when it was not measured; `age` in seconds."""

    source: str
    target: str
    kind: str
    interface: str
    local_address: str
    remote_address: str
    latency_ms: float
    bandwidth: float
    age: float
    stale: bool


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """`node` is empty when it is about several."""

    code: str
    message: str
    remedy: str = ""
    node: str = ""


class TopologyView(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the answer that commands read."""

    nodes: dict[str, NodeView] = {}
    links: tuple[LinkView, ...] = ()
    findings: tuple[FindingView, ...] = ()

    def name(self, node: str) -> str:
        """Give a node's name, or its id when it is not known."""
        known = self.nodes.get(node)
        return known.name if known is not None else node


def list_links(view: TopologyView) -> list[list[str]]:
    """Give a row per link and direction, by name."""
    rows = [
        [
            view.name(link.source),
            view.name(link.target),
            link.kind,
            link.interface or "-",
            show_latency(link.latency_ms),
            f"{show_bytes(link.bandwidth)}/s" if link.bandwidth else "-",
            "stale" if link.stale else "fresh",
            show_duration(link.age),
            link.local_address,
            link.remote_address,
        ]
        for link in view.links
    ]
    return sorted(rows)


def show_latency(milliseconds: float) -> str:
    """Give as many digits as matter: a cable takes a tenth of a millisecond, a Wi-Fi some, the world hundreds."""
    return f"{milliseconds:.2f} ms" if milliseconds < 10 else f"{milliseconds:.0f} ms"


def list_findings(view: TopologyView) -> list[str]:
    """Give what is wrong with the hardware of the nodes, each with its remedy."""
    return [_show_finding(view, finding) for finding in view.findings]


def _show_finding(view: TopologyView, finding: FindingView) -> str:
    where = f"{view.name(finding.node)}: " if finding.node else ""
    remedy = f"\n  -> {finding.remedy}" if finding.remedy else ""
    return f"{where}{finding.message} [{finding.code}]{remedy}"
