"""The JSON object of a tool call's arguments, checked and passed on while it is still being written."""

from enum import Enum, auto
from string import hexdigits, whitespace


class _NotJsonError(ValueError):
    """Raised at the first character that cannot belong to a JSON object."""


class _Expect(Enum):
    VALUE = auto()
    FIRST_VALUE = auto()
    KEY = auto()
    FIRST_KEY = auto()
    COLON = auto()
    COMMA = auto()
    STRING = auto()
    ESCAPE = auto()
    HEX = auto()
    LITERAL = auto()
    NOTHING = auto()


_LITERAL = frozenset("+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_WORDS = ("true", "false", "null")
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class ObjectScanner:
    """Follows one JSON object character by character.

    Raw line breaks and tabs inside strings, which small models like to write, come out escaped.
    """

    def __init__(self) -> None:
        self._expect = _Expect.VALUE
        self._closers: list[str] = []
        self._is_key = False
        self._literal = ""
        self._hex_left = 0
        self.members = 0
        """Keys of the outermost object seen so far, their colon included."""
        self.is_broken = False
        """Whether something came that cannot belong to a JSON object."""

    @property
    def is_complete(self) -> bool:
        return self._expect is _Expect.NOTHING

    def feed(self, text: str) -> tuple[str, str]:
        """Give (valid JSON text, what comes after the object or from the first wrong character on)."""
        taken: list[str] = []
        for position, character in enumerate(text):
            if self.is_complete or self.is_broken:
                return "".join(taken), text[position:]
            try:
                taken.append(self._take(character))
            except _NotJsonError:
                self.is_broken = True
                return "".join(taken), text[position:]
        return "".join(taken), ""

    def _take(self, character: str) -> str:
        match self._expect:
            case _Expect.STRING:
                return self._take_in_string(character)
            case _Expect.ESCAPE:
                self._take_escape(character)
            case _Expect.HEX:
                self._take_hex(character)
            case _Expect.LITERAL if character in _LITERAL:
                self._literal += character
            case _Expect.LITERAL:
                self._end_literal()
                return self._take(character)
            case _ if character in whitespace:
                pass
            case _:
                self._take_structure(character)
        return character

    def _take_in_string(self, character: str) -> str:
        if character == '"':
            self._expect = _Expect.COLON if self._is_key else self._after_value()
        elif character == "\\":
            self._expect = _Expect.ESCAPE
        elif character < " ":
            return _CONTROL.get(character, f"\\u{ord(character):04x}")
        return character

    def _take_escape(self, character: str) -> None:
        if character not in '"\\/bfnrtu':
            raise _NotJsonError(f"\\{character}")
        self._expect = _Expect.HEX if character == "u" else _Expect.STRING
        self._hex_left = 4

    def _take_hex(self, character: str) -> None:
        if character not in hexdigits:
            raise _NotJsonError(f"\\u with {character}")
        self._hex_left -= 1
        if not self._hex_left:
            self._expect = _Expect.STRING

    def _take_structure(self, character: str) -> None:
        expect = self._expect
        if character == '"' and expect in {_Expect.KEY, _Expect.FIRST_KEY}:
            self._is_key, self._expect = True, _Expect.STRING
        elif character == ":" and expect is _Expect.COLON:
            self.members += len(self._closers) == 1
            self._expect = _Expect.VALUE
        elif character == "," and expect is _Expect.COMMA:
            self._expect = _Expect.KEY if self._closers[-1] == "}" else _Expect.VALUE
        elif character in "}]":
            self._close(character)
        elif expect in {_Expect.VALUE, _Expect.FIRST_VALUE}:
            self._begin_value(character)
        else:
            raise _NotJsonError(character)

    def _close(self, character: str) -> None:
        empty = _Expect.FIRST_KEY if character == "}" else _Expect.FIRST_VALUE
        if not self._closers or self._closers[-1] != character or self._expect not in {empty, _Expect.COMMA}:
            raise _NotJsonError(character)
        self._closers.pop()
        self._expect = self._after_value()

    def _begin_value(self, character: str) -> None:
        if character == "{":
            self._closers.append("}")
            self._expect = _Expect.FIRST_KEY
        elif not self._closers:
            raise _NotJsonError(character)
        elif character == "[":
            self._closers.append("]")
            self._expect = _Expect.FIRST_VALUE
        elif character == '"':
            self._is_key, self._expect = False, _Expect.STRING
        elif character in _LITERAL:
            self._literal, self._expect = character, _Expect.LITERAL
        else:
            raise _NotJsonError(character)

    def _end_literal(self) -> None:
        if self._literal not in _WORDS and not _is_number(self._literal):
            raise _NotJsonError(self._literal)
        self._expect = self._after_value()

    def _after_value(self) -> _Expect:
        return _Expect.COMMA if self._closers else _Expect.NOTHING


def _is_number(text: str) -> bool:
    if text[0] not in "-0123456789" or text[-1] not in "0123456789":
        return False
    try:
        float(text)
    except ValueError:
        return False
    digits = text.removeprefix("-")
    return not (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit())
