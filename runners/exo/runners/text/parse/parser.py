"""Splits a model's text into visible content, thinking and tool calls while it is being written.

One parser per answer; `exo.runners.answer` feeds it. It never fails: whatever is not a well-formed
call is content.
"""

import msgspec

from exo.runners.text.parse.calls import CallReader, make_call_reader
from exo.runners.text.parse.pieces import CallEnd, Content, Markers, Piece, Thought
from exo.streams.requests import Tool


class Marking(msgspec.Struct, frozen=True, kw_only=True):
    """How thinking and calls are marked in the text to come; an empty start marker switches either off."""

    think_start: str = ""
    think_end: str = ""
    tool_start: str = ""
    tool_end: str = ""
    tool_format: str = ""
    tools: tuple[Tool, ...] = ()


class TextParser:
    """Takes text in any cut, gives pieces in order.

    The line breaks that templates put around the markers (one inside each end of the thinking
    block, two after it, one before a call) are not part of the text; blanks after a call are
    dropped.
    """

    def __init__(self, marking: Marking, *, reasoning_open: bool = False) -> None:
        self._marking = marking
        starts = [marking.tool_start, f"\n{marking.tool_start}"] if marking.tool_start else []
        self._content = Markers([marking.think_start, *starts])
        self._thought = Markers([marking.think_end, f"\n{marking.think_end}"] if marking.think_end else [])
        self.is_thinking = reasoning_open
        self._buffer = ""
        self._breaks_to_skip = 1 if reasoning_open else 0
        self._is_after_call = False
        self._blanks = ""
        self._reader: CallReader | None = None

    def feed(self, text: str) -> list[Piece]:
        """Take more text; give what is certain by now."""
        if text and not self._buffer and self._reader is None and self._is_plain(text):
            pieces: list[Piece] = []
            self._give(text, pieces)
            return pieces
        self._buffer += text
        pieces = []
        while self._buffer and self._advance(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """The text is over: give what was held back."""
        pieces: list[Piece] = []
        if self._reader is not None:
            pieces, self._reader = self._reader.finish(), None
        else:
            self._give(self._buffer, pieces)
        self._buffer = ""
        return pieces

    def _is_plain(self, text: str) -> bool:
        """Whether no marker can begin in this text: true of nearly every token."""
        return not (self._thought if self.is_thinking else self._content).may_begin_in(text)

    def _advance(self, pieces: list[Piece]) -> bool:
        """Work on the buffer up to the next marker; whether there may be another behind it."""
        if self._reader is not None:
            return self._read_call(self._reader, pieces)
        markers = self._thought if self.is_thinking else self._content
        at, marker = markers.find(self._buffer)
        if at < 0:
            cut = len(self._buffer) - markers.count_held(self._buffer)
            self._give(self._buffer[:cut], pieces)
            self._buffer = self._buffer[cut:]
            return False
        self._give(self._buffer[:at], pieces)
        self._buffer = self._buffer[at + len(marker) :]
        self._cross(marker)
        return True

    def _cross(self, marker: str) -> None:
        """Move into what the marker opens, or out of what it closes."""
        if self.is_thinking:
            self.is_thinking, self._breaks_to_skip = False, 2
        elif marker == self._marking.think_start:
            self.is_thinking, self._breaks_to_skip = True, 1
        else:
            marking = self._marking
            self._reader = make_call_reader(
                marking.tool_format, start=marker, end=marking.tool_end, tools=marking.tools
            )

    def _read_call(self, reader: CallReader, pieces: list[Piece]) -> bool:
        given, rest = reader.feed(self._buffer)
        pieces += given
        self._buffer = rest or ""
        if rest is None:
            return False
        self._reader = None
        self._breaks_to_skip = 0
        self._is_after_call, self._blanks = any(isinstance(piece, CallEnd) for piece in given), ""
        return True

    def _give(self, text: str, pieces: list[Piece]) -> None:
        while text and self._breaks_to_skip and text[0] == "\n":
            text = text[1:]
            self._breaks_to_skip -= 1
        if not text:
            return
        self._breaks_to_skip = 0
        if self.is_thinking:
            pieces.append(Thought(text))
        elif not self._is_after_call:
            pieces.append(Content(text))
        elif text.strip():
            pieces.append(Content(self._blanks + text))
            self._is_after_call, self._blanks = False, ""
        else:
            self._blanks += text
