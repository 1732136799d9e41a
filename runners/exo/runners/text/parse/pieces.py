"""What the parser makes of a model's text, and how it looks for markers in a stream."""

from collections.abc import Iterable

import msgspec


class Content(msgspec.Struct, frozen=True, gc=False):
    """Visible text of the answer."""

    text: str


class Thought(msgspec.Struct, frozen=True, gc=False):
    """Text inside the thinking block."""

    text: str


class CallStart(msgspec.Struct, frozen=True, gc=False):
    """A tool call begins; arguments follow in pieces, then `CallEnd`."""

    name: str


class CallArguments(msgspec.Struct, frozen=True, gc=False):
    """A piece of the JSON text of the arguments."""

    text: str


class CallEnd(msgspec.Struct, frozen=True, gc=False):
    """The call is whole."""


Piece = Content | Thought | CallStart | CallArguments | CallEnd


class Markers:
    """A set of strings to look for in text that arrives in pieces."""

    def __init__(self, markers: Iterable[str]) -> None:
        self._markers = [marker for marker in markers if marker]
        self._longest = max(map(len, self._markers), default=0)
        self._heads = {marker[0] for marker in self._markers}

    def may_begin_in(self, text: str) -> bool:
        """Whether `text` holds the first character of a marker."""
        return any(head in text for head in self._heads)

    def find(self, text: str) -> tuple[int, str]:
        """Give position and spelling of the earliest marker, the longest of those; (-1, "") without one."""
        hits = [(at, -len(marker), marker) for marker in self._markers if (at := text.find(marker)) >= 0]
        if not hits:
            return -1, ""
        at, _, marker = min(hits)
        return at, marker

    def count_held(self, text: str) -> int:
        """Count the characters at the end of `text` that may be the beginning of a marker."""
        tail = text[-(self._longest - 1) :] if self._longest > 1 else ""
        for start, character in enumerate(tail):
            if character in self._heads and any(marker.startswith(tail[start:]) for marker in self._markers):
                return len(tail) - start
        return 0
