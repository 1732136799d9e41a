"""What is wrong with this machine right now, by who noticed it. Telemetry publishes it as a gauge."""

from exo.streams.findings import NodeFinding


class FindingBoard:
    """Each collector keeps its own place up to date."""

    def __init__(self) -> None:
        self._findings: dict[str, tuple[NodeFinding, ...]] = {}

    def note(self, source: str, *findings: NodeFinding) -> None:
        """Replace what `source` has found; nothing means that all is well there."""
        self._findings[source] = findings

    def current(self) -> tuple[NodeFinding, ...]:
        """Give all findings, in the order in which their sources first spoke."""
        return tuple(finding for findings in self._findings.values() for finding in findings)
