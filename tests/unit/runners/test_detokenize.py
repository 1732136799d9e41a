"""Tokens to text, never half a character, for each family of tokenizers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from exo.runners.text.detokenize import Detokenization, Detokenizer


def byte_level() -> Tokenizer:
    """Every byte a token of its own, and one special token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(BPE({piece: number for number, piece in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<ends here>", special=True, normalized=False)])
    return tokenizer


def sentencepiece() -> Tokenizer:
    pieces = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "▁Hello", "▁world", "!"]
    tokenizer = Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def share(tokenizer: Tokenizer, *, known: bool = True) -> Detokenization:
    def decode(tokens: object) -> str:
        return tokenizer.decode(list(tokens), skip_special_tokens=False)  # pyright: ignore[reportArgumentType]

    return Detokenization(decode, tokenizer if known else None)


def say(detokenizer: Detokenizer, tokens: list[int]) -> list[str]:
    return [*(detokenizer.add(token) for token in tokens), detokenizer.flush()]


@pytest.mark.parametrize("known", [True, False])
@given(text=st.text(max_size=20))
def test_pieces_are_whole_characters_and_join_to_the_text(known: bool, text: str) -> None:
    tokenizer = byte_level()
    pieces = say(share(tokenizer, known=known).start(), tokenizer.encode(text).ids)
    assert "".join(pieces) == text
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize("known", [True, False])
def test_half_a_character_at_the_end_is_dropped(known: bool) -> None:
    tokenizer = byte_level()
    tokens = tokenizer.encode("a😀").ids
    for length in (2, 3, 4):
        assert "".join(say(share(tokenizer, known=known).start(), tokens[:length])) == "a"


def test_bytes_that_are_no_character_are_shown_as_such_and_nothing_is_stuck() -> None:
    tokenizer = byte_level()
    lone, letter = tokenizer.encode("é").ids[1], tokenizer.encode("a").ids[0]
    assert "".join(say(share(tokenizer).start(), [lone, letter])) == "\ufffda"


def test_special_tokens_are_shown_as_written() -> None:
    tokenizer = byte_level()
    tokens = tokenizer.encode("a<ends here>b").ids
    assert say(share(tokenizer).start(), tokens) == ["a", "<ends here>", "b", ""]


def test_sentencepiece_drops_the_first_space_unless_it_continues() -> None:
    tokenizer = sentencepiece()
    vocabulary = tokenizer.get_vocab()
    ids = [vocabulary[piece] for piece in ("▁Hello", "▁world", "!", "<0xC3>", "<0xA9>", "▁")]
    assert say(share(tokenizer).start(), ids) == ["Hello", " world", "!", "", "é", " ", ""]
    assert say(share(tokenizer).start(continues=True), ids[:2]) == [" Hello", " world", ""]


def test_a_tokens_bytes_may_be_half_a_character() -> None:
    tokenizer = byte_level()
    words = share(tokenizer)
    assert b"".join(words.read_bytes(token) for token in tokenizer.encode("日").ids) == "日".encode()
    assert words.read_bytes(10**6) == b""
    assert say(words.start(), [10**6]) == ["", ""]
