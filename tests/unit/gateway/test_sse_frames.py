"""Frames on the wire: places, skipping, comments; and rendering that is the same every time."""

from hypothesis import given
from hypothesis import strategies as st

from exo.gateway.dialects.openai_chat.from_chunks import render_stream
from exo.gateway.sse import Frame, Position, encode_event, encode_frames, parse_position
from exo.streams.chunks import Admitted, Chunk, Done, Prefill, Reasoning, Statistics, Text, ToolCallStarted, Usage
from exo.streams.ids import TaskId
from exo.streams.requests import ResumeRecord

FRAMES = [Frame(b"a"), Frame(b"note", comment=True), Frame(b"b", event=b"name")]
RESUME = ResumeRecord(dialect="openai_chat", created=1, stream=True, options={"include_usage": True})
TEXTS = st.text(max_size=5)


def test_a_frame_has_its_place_and_a_comment_has_none() -> None:
    encoded = encode_frames(7, FRAMES)
    assert encoded == b"id: 7.0\ndata: a\n\n: note\nid: 7.1\nevent: name\ndata: b\n\n"


def test_frames_up_to_a_place_are_left_out() -> None:
    assert encode_frames(7, FRAMES, after=Position(7, 0)) == b"id: 7.1\nevent: name\ndata: b\n\n"
    assert encode_frames(7, FRAMES, after=Position(7, 1)) == b""
    assert encode_frames(7, FRAMES, after=Position(8, 0)) == b""
    assert encode_frames(7, FRAMES, after=Position(6, 9)) == encode_frames(7, FRAMES)


def test_a_place_is_read_back() -> None:
    assert parse_position("12.3") == Position(12, 3)
    assert parse_position("") < Position(0, 0)


def test_an_event_of_another_stream() -> None:
    assert encode_event(b"{}", event_id="s.1", event="x") == b"id: s.1\nevent: x\ndata: {}\n\n"


def build_answer(pieces: list[Chunk]) -> list[Chunk]:
    """Number pieces as one attempt, between its admission and its end."""
    done = Done(1, len(pieces) + 1, "stop", Usage(prompt=3, completion=2), Statistics(peak_memory=5))
    return [Admitted(1, 0, 3), *pieces, done]


@st.composite
def answers(draw: st.DrawFn) -> list[Chunk]:
    pieces: list[Chunk] = []
    for index in range(1, draw(st.integers(1, 8))):
        kind = draw(st.integers(0, 3))
        text = draw(TEXTS)
        made: list[Chunk] = [
            Text(1, index, text),
            Reasoning(1, index, text),
            Prefill(1, index, 1, 3),
            ToolCallStarted(1, index, 0, "call", "look"),
        ]
        pieces.append(made[kind])
    return build_answer(pieces)


def render(chunks: list[Chunk], *, after: Position) -> bytes:
    renderer = render_stream(TaskId("t"), "org/model", RESUME)
    return b"".join(encode_frames(chunk.index, renderer.frames(chunk), after=after) for chunk in chunks)


@given(answers(), st.data())
def test_a_stream_cut_anywhere_goes_on_without_gap_or_repeat(chunks: list[Chunk], data: st.DataObject) -> None:
    whole = render(chunks, after=parse_position(""))
    frames = [b"id: " + part for part in whole.split(b"id: ")[1:]]
    cut = data.draw(st.integers(0, len(frames) - 1))
    place = frames[cut].partition(b"\n")[0].removeprefix(b"id: ").decode()
    rest = render(chunks, after=parse_position(place))
    wanted = [frame.partition(b"\n\n")[0] for frame in frames[cut + 1 :]]
    given_again = [b"id: " + part.partition(b"\n\n")[0] for part in rest.split(b"id: ")[1:]]
    assert given_again == wanted


def test_no_line_break_of_an_answer_breaks_a_frame() -> None:
    encoded = render(build_answer([Text(1, 1, "a\nb\r\n\u2028c")]), after=parse_position(""))
    assert len(encoded.split(b"\n\n")) == 6
