"""However a model's text is cut into tokens, the parser and the stop strings find the same in it."""

from hypothesis import given
from hypothesis import strategies as st

from exo.runners.text.parse.parser import Marking, TextParser
from exo.runners.text.parse.pieces import CallArguments, CallEnd, CallStart, Content, Piece, Thought
from exo.runners.text.stop import StopStrings

MARKING = Marking(
    think_start="<think>",
    think_end="</think>",
    tool_start="<tool_call>",
    tool_end="</tool_call>",
    tool_format="json_tools",
)
_FRAGMENTS = st.sampled_from([
    "<think>", "</think>", "<tool_call>", "</tool_call>", "\n", "\n\n", " ", "<", "<tool", "text", "é😀", "}", "{",
    '{"name": "f", "arguments": {"a": [1, "]]"]}}', '<tool_call>{"name": "f", "arguments": {"a": 1',
    '{"name": "f"', ', "arguments": ', '{"a": 1', "'", '"',
])  # fmt: skip
_TEXTS = st.lists(_FRAGMENTS, max_size=14).map("".join)
_CUTS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def _cut(text: str, sizes: list[int]) -> list[str]:
    pieces: list[str] = []
    while text:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def _parse(pieces: list[str]) -> list[Piece]:
    parser = TextParser(MARKING)
    found = [piece for text in pieces for piece in parser.feed(text)]
    return _join([*found, *parser.finish()])


def _join(pieces: list[Piece]) -> list[Piece]:
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        match piece, last:
            case (Content(text), Content(before)) | (Thought(text), Thought(before)):
                joined[-1] = type(piece)(before + text)
            case CallArguments(text), CallArguments(before):
                joined[-1] = CallArguments(before + text)
            case _:
                joined.append(piece)
    return joined


@given(_TEXTS, _CUTS)
def test_cuts_do_not_matter(text: str, sizes: list[int]) -> None:
    assert _parse(_cut(text, sizes)) == _parse([text])


@given(_TEXTS, _CUTS)
def test_calls_are_well_formed(text: str, sizes: list[int]) -> None:
    is_open = False
    for piece in _parse(_cut(text, sizes)):
        match piece:
            case CallStart(name):
                assert not is_open
                assert name
                is_open = True
            case CallArguments(said):
                assert is_open
                assert said
            case CallEnd():
                assert is_open
                is_open = False
            case Content(said) | Thought(said):
                assert not is_open
                assert said


@given(st.text(alphabet="ab<\n"), _CUTS)
def test_text_without_markers_is_content(text: str, sizes: list[int]) -> None:
    assert "".join(piece.text for piece in _parse(_cut(text, sizes)) if isinstance(piece, Content)) == text


@given(st.text(alphabet="abc", max_size=30), st.lists(st.text(alphabet="abc", min_size=1), max_size=4), _CUTS)
def test_stop_strings_never_show(text: str, stops: list[str], sizes: list[int]) -> None:
    filtered = StopStrings(stops)
    shown = "".join(filtered.push(piece) for piece in _cut(text, sizes)) + filtered.flush()
    assert text.startswith(shown)
    assert (filtered.matched is None) == (shown == text and not any(stop in text for stop in stops))
    assert not any(stop in shown for stop in stops)
