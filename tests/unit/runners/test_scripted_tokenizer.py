"""The scripted engine's tokens are its bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exo.runners.engines.scripted.tokenizer import SPECIAL, encode, read_bytes


@given(st.text())
def test_text_survives(text: str) -> None:
    assert b"".join(map(read_bytes, encode(text))) == text.encode()


@pytest.mark.parametrize(
    ("text", "count"),
    [("word word", 2), ("Hello", 2), ("世", 3), ("😀", 4), ("<think>", 1), ("<|im_end|>", 1), ("", 0), ("\0", 1)],
)
def test_length_in_tokens_is_predictable(text: str, count: int) -> None:
    assert len(encode(text)) == count


def test_markers_are_single_special_tokens() -> None:
    assert [encode(text) for text in SPECIAL] == [(number,) for number in SPECIAL.values()]


def test_a_lone_surrogate_is_replaced() -> None:
    assert b"".join(map(read_bytes, encode("a\ud83d"))) == b"a?"


def test_an_unknown_special_number_says_nothing() -> None:
    assert read_bytes(99) == b""
