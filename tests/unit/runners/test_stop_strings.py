"""Stop strings across the borders of pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.runners.text.stop import StopStrings


def stream(pieces: list[str], stops: list[str]) -> tuple[str, str | None]:
    watch = StopStrings(stops)
    shown = "".join(watch.push(piece) for piece in pieces)
    return shown + ("" if watch.matched else watch.flush()), watch.matched


@pytest.mark.parametrize(
    ("pieces", "stops", "shown", "matched"),
    [
        (["Hello ", "wor", "ld!"], ["world"], "Hello ", "world"),
        (["Hello ", "wor", "k!"], ["world"], "Hello work!", None),
        (["aab"], ["ab"], "a", "ab"),
        (["abc"], ["abcd", "bc"], "a", "bc"),
        (["xabc"], ["c", "abc"], "x", "abc"),
        (["\n", "\n", "x"], ["\n\n"], "", "\n\n"),
        (["anything"], [], "anything", None),
        (["anything"], [""], "anything", None),
        (["ends wor"], ["world"], "ends wor", None),
    ],
)
def test_examples(pieces: list[str], stops: list[str], shown: str, matched: str | None) -> None:
    assert stream(pieces, stops) == (shown, matched)


def test_only_what_may_begin_a_stop_string_is_held_back() -> None:
    watch = StopStrings(["END", "stop"])
    assert watch.push("text st") == "text "
    assert watch.push("range EN") == "strange "
    assert watch.push("D more") == ""
    assert watch.matched == "END"
    assert watch.push("later") == ""
    assert watch.flush() == ""


@given(
    text=st.text("abc", max_size=20), stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), data=st.data()
)
def test_the_cut_into_pieces_does_not_matter(text: str, stops: list[str], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    shown, matched = stream(pieces, stops)
    assert (shown, matched) == stream(list(text), stops)
    assert text.startswith(shown)
    assert not any(stop in shown for stop in stops)
    if matched is None:
        assert shown == text
    else:
        assert text.startswith(shown + matched)
