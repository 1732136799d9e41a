"""One measured value against its target."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Result:
    """A line of the report. `bound` says on which side of `target` the value must lie; None only informs."""

    scenario: str
    what: str
    value: float
    unit: str
    bound: Literal["at most", "at least"] | None = None
    target: float = 0
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the target is met; what has none is."""
        if self.bound == "at most":
            return self.value <= self.target
        return self.bound is None or self.value >= self.target

    def line(self) -> str:
        """Render the result for a terminal or a closing note."""
        verdict = "    " if self.bound is None else "PASS" if self.passed else "MISS"
        goal = "" if self.bound is None else f"{self.bound} {self.target:g}"
        measured = f"{self.scenario:8} {self.what:62} {self.value:10.3f} {self.unit:3}"
        return f"{verdict}  {measured} {goal:14} {self.note}".rstrip()


def percentile(values: list[float], share: float) -> float:
    """Give the value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
