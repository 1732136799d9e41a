"""The formats in which models write tool calls, between the markers that the text parser finds.

JSON calls (`{"name": ..., "arguments": {...}}`) are passed on while they are written; every other
format is read as a whole by mlx-lm's parser of that name, once the end marker has come.
"""

import importlib
import json
import re
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Protocol

import structlog

from exo.runners.text.parse.arguments import ObjectScanner
from exo.runners.text.parse.pieces import CallArguments, CallEnd, CallStart, Content, Markers, Piece
from exo.streams.requests import Tool

log = structlog.get_logger(__name__)

JSON_FORMATS = frozenset({"", "json_tools"})


class CallReader(Protocol):
    """Reads one call, from behind its start marker to its end marker."""

    def feed(self, text: str) -> tuple[list[Piece], str | None]:
        """Take more text; give pieces and, once the end marker has come, the text behind it."""
        ...

    def finish(self) -> list[Piece]:
        """The answer ends inside the call: give the rest."""
        ...


def make_call_reader(name: str, *, start: str, end: str, tools: tuple[Tool, ...]) -> CallReader:
    """Build the reader of one call in the format `name`."""
    if name in JSON_FORMATS:
        return JsonCallReader(start=start, end=end)
    return WholeCallReader(name, start=start, end=end, tools=tools)


class WholeCallReader:
    """Hands the whole text of the call to mlx-lm's parser; what that refuses becomes content."""

    def __init__(self, name: str, *, start: str, end: str, tools: tuple[Tool, ...]) -> None:
        self._name = name
        self._start, self._end = start, end
        self._tools = [describe_tool(tool) for tool in tools]
        self._buffer = ""

    def feed(self, text: str) -> tuple[list[Piece], str | None]:
        self._buffer += text
        body, found, rest = self._buffer.partition(self._end) if self._end else (self._buffer, "", "")
        return (self._read(body, self._end), rest) if found else ([], None)

    def finish(self) -> list[Piece]:
        return self._read(self._buffer, "")

    def _read(self, body: str, end: str) -> list[Piece]:
        try:
            return give_calls(_load_parser(self._name)(body, self._tools))
        except Exception as error:  # noqa: BLE001 - logged, and without the traceback: it would quote the answer
            # These parsers raise whatever the text makes them stumble over.
            log.warning("a tool call could not be read", format=self._name, error=type(error).__name__)
            return [Content(self._start + body + end)]


_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


class _At(Enum):
    HEAD = auto()
    ARGUMENTS = auto()
    TAIL = auto()


class JsonCallReader:
    """Passes a JSON call on as it is written.

    Nothing is given out before the name is known and the first key of the arguments has come, so
    that what is no call after all can still become content. Later on there is no way back: text
    that stops being JSON is passed on as it is.
    """

    def __init__(self, *, start: str, end: str) -> None:
        self._start, self._end = start, end
        self._markers = Markers([end])
        self._at = _At.HEAD
        self._seen = ""
        self._unread = ""
        self._name = ""
        self._scanner = ObjectScanner()
        self._held = ""
        self._is_given = False

    def feed(self, text: str) -> tuple[list[Piece], str | None]:
        self._seen += "" if self._is_given else text
        self._unread += text
        pieces: list[Piece] = []
        if self._at is _At.HEAD and (head := _HEAD.match(self._unread)):
            self._name = head[1]
            self._unread = self._unread[head.end() :]
            self._at = _At.ARGUMENTS
        if self._at is _At.ARGUMENTS:
            pieces += self._scan()
        if self._at is _At.ARGUMENTS:
            return pieces, None
        return self._seek_end(pieces)

    def _scan(self) -> list[Piece]:
        valid, self._unread = self._scanner.feed(self._unread)
        self._held += valid
        if self._scanner.is_complete or self._scanner.is_broken:
            self._at = _At.TAIL
        return self._give() if self._scanner.members or self._scanner.is_complete else []

    def _give(self) -> list[Piece]:
        pieces: list[Piece] = [] if self._is_given else [CallStart(self._name)]
        self._is_given = True
        if self._held:
            pieces.append(CallArguments(self._held))
            self._held = ""
        return pieces

    def _seek_end(self, pieces: list[Piece]) -> tuple[list[Piece], str | None]:
        at, marker = self._markers.find(self._unread)
        cut = at if at >= 0 else len(self._unread) - self._markers.count_held(self._unread)
        passed, rest = self._unread[:cut], self._unread[cut + len(marker) :]
        if self._is_given and not self._scanner.is_complete and passed:
            pieces.append(CallArguments(passed))
        self._unread = rest if at < 0 else ""
        if at < 0:
            if not self._is_given:
                self._unread = passed + rest
            return pieces, None
        return [*pieces, *self._end_call(rest)], rest

    def _end_call(self, rest: str) -> list[Piece]:
        if self._is_given:
            return [CallEnd()]
        seen = self._seen[: len(self._seen) - len(rest)]
        return self._read(seen.removesuffix(self._end), self._end)

    def finish(self) -> list[Piece]:
        if self._is_given:
            return [CallEnd()] if self._scanner.is_complete else []
        return self._read(self._seen, "")

    def _read(self, body: str, end: str) -> list[Piece]:
        try:
            return give_calls(json.loads(body, strict=False))
        except ValueError:
            log.warning("a tool call could not be read", format="json")
            return [Content(self._start + body + end)]


def describe_tool(tool: Tool) -> dict[str, Any]:
    """Give a tool in the form that chat templates and mlx-lm's parsers expect."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def give_calls(parsed: Any) -> list[Piece]:
    """Turn one parsed call, or a list of them, into pieces; `ValueError` when it is not a call."""
    pieces: list[Piece] = []
    for call in parsed if isinstance(parsed, list) else [parsed]:
        if not (isinstance(call, dict) and isinstance(name := call.get("name"), str) and name):
            raise ValueError("a tool call needs a name")
        arguments = call.get("arguments", call.get("parameters")) or {}
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False)
        if not isinstance(arguments, dict):
            raise ValueError("the arguments of a tool call must be an object")  # noqa: TRY004 - text, not a type
        pieces += [CallStart(name), CallArguments(json.dumps(arguments, ensure_ascii=False)), CallEnd()]
    if not pieces:
        raise ValueError("no call")
    return pieces


def _load_parser(name: str) -> Callable[[str, list[dict[str, Any]]], Any]:
    return importlib.import_module(f"mlx_lm.tool_parsers.{name}").parse_tool_call
