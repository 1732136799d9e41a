"""Stop strings, found although they may be spread over many pieces of text. Pure, one per answer."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on and holds back what may be the beginning of a stop string.

    The string that is complete first wins, of several that end together the longest; so the result
    does not depend on how the text was cut into pieces. Neither it nor any part of it is passed on.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(dict.fromkeys(stop for stop in stops if stop))
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the answer, None as long as none did."""

    def push(self, text: str) -> str:
        """Take the next piece and give what may be shown; nothing more after a match."""
        if self.matched is not None:
            return ""
        self._held += text
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            _, at, self.matched = min(found)
            shown, self._held = self._held[:at], ""
            return shown
        return self._release(self._count_partial())

    def flush(self) -> str:
        """Give what is still held back: the answer ended, so it is no stop string."""
        return self._release(0)

    def _release(self, keep: int) -> str:
        cut = len(self._held) - keep
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown

    def _count_partial(self) -> int:
        """Count the last characters that begin a stop string."""
        longest = min(max(map(len, self._stops), default=0) - 1, len(self._held))
        for length in range(longest, 0, -1):
            if any(stop.startswith(self._held[-length:]) for stop in self._stops):
                return length
        return 0
