"""What `exo doctor` concludes about the hardware of the nodes, and how Macs are wired. Pure: facts in, findings out.

The nodes find it out themselves (`exo.streams.findings`); docs/hardware.md lists every code.
"""

from collections.abc import Iterator

import msgspec

from exo.ops.findings import Finding
from exo.ops.links_view import FindingView


class HardwareFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`findings` name the node where they are about one; empty is this machine."""

    findings: tuple[FindingView, ...] = ()


def check_hardware(facts: HardwareFacts) -> Iterator[Finding]:
    """Give each once, in the order the nodes gave them."""
    for finding in facts.findings:
        where = f"{finding.node}: " if finding.node else ""
        yield Finding(finding.code.replace("_", " "), "warning", f"{where}{finding.message}", finding.remedy)
