"""Why macmon does not measure, in words, and what helps. Pure."""

from typing import Final

from exo.streams.findings import NodeFinding

PINNED_REVISION: Final = "a1cd06b6cc0d5e61db24fd8832e74cd992097a7d"
"""The revision of github.com/vladkens/macmon that upstream exo pins: the first to know the M5 family."""

INSTALL: Final = f"cargo install --git https://github.com/vladkens/macmon --rev {PINNED_REVISION} macmon --force"
_WITHOUT: Final = "GPU, power and temperature are not shown; memory is measured by psutil"


class MacmonFailure(Exception):
    """Raised when macmon gives no samples. `code` is its exit code, 128 + the signal that ended it."""

    def __init__(self, reason: str, detail: str, *, code: int = 0) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.code = code


def explain(failure: MacmonFailure) -> NodeFinding:
    """Give the finding that a person sees."""
    if failure.reason == "missing":
        return NodeFinding(
            code="macmon_missing", message=f"{failure.detail} is not installed: {_WITHOUT}", remedy=f"`{INSTALL}`"
        )
    if failure.reason == "crashed":
        said = f": {failure.detail}" if failure.detail else ""
        return NodeFinding(
            code="macmon_crashed",
            message=f"macmon ended with code {failure.code}{said}; {_WITHOUT}",
            remedy=f"Homebrew's macmon 0.6.1 crashes on the M5 family; install the revision that does not: `{INSTALL}`",
        )
    if failure.reason == "silent":
        return NodeFinding(
            code="macmon_silent",
            message=f"macmon fell silent and was started anew ({failure.detail})",
            remedy="if it happens again and again: `macmon pipe` in a terminal shows what it says",
        )
    return NodeFinding(
        code="macmon_unreadable",
        message=f"macmon gave no sample that can be read ({failure.detail}); {_WITHOUT}",
        remedy=f"install the revision whose format is known: `{INSTALL}`",
    )
