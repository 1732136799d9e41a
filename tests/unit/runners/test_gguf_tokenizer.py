"""Tokenizers rebuilt from metadata, against hand-checked cuts and against SentencePiece's own algorithm."""

from itertools import pairwise
from typing import Any

import pytest

from exo.runners.gguf.errors import FileDamaged, Unsupported
from exo.runners.gguf.source import Metadata
from exo.runners.gguf.tokenizer import build_tokenizer
from support.gguf_files import MERGES, PIECES, SPECIAL

TEXT = "It's 12345 naïve  words,\n\n ok?"


def describe(scheme: str = "smollm", **more: object) -> Metadata:
    """Metadata of a small byte-level vocabulary."""
    base: dict[str, object] = {
        "model": "gpt2",
        "pre": scheme,
        "tokens": list(PIECES),
        "token_type": [3] * len(SPECIAL) + [1] * (len(PIECES) - len(SPECIAL)),
        "merges": list(MERGES),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in {**base, **more}.items()}  # pyright: ignore[reportReturnType]


def cut(scheme: str) -> list[str]:
    """The pieces of TEXT before merging, readable."""
    tokenizer, _ = build_tokenizer(describe(scheme))
    assert tokenizer.pre_tokenizer is not None
    return [TEXT[slice(*span)] for _, span in tokenizer.pre_tokenizer.pre_tokenize_str(TEXT)]


@pytest.mark.parametrize(
    ("scheme", "pieces"),
    [
        ("gpt-2", ["It", "'s", " 12345", " naïve", " ", " words", ",", "\n\n", " ok", "?"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", " naïve", " ", " words", ",", "\n\n", " ok", "?"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", " naïve", " ", " words", ",\n\n", " ok", "?"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", " naïve", " ", " words", ",\n\n", " ok", "?"]),
    ],
)
def test_text_is_cut_as_the_named_scheme_cuts_it(scheme: str, pieces: list[str]) -> None:
    assert cut(scheme) == pieces


def test_any_text_survives_the_round_trip() -> None:
    tokenizer, _ = build_tokenizer(describe())
    for text in (TEXT, "日本語 👩‍👩‍👧 \x00\t", "  hello world"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_control_tokens_are_found_in_text_and_merges_are_used() -> None:
    tokenizer, vocabulary = build_tokenizer(describe())
    encoded = tokenizer.encode("<|im_start|>hello world<|im_end|>")
    assert encoded.tokens == ["<|im_start|>", "hello", "Ġworld", "<|im_end|>"]
    assert vocabulary.ends == (2, 0)


def test_first_and_last_tokens_are_added_when_the_file_says_so() -> None:
    quiet, _ = build_tokenizer(describe())
    loud, _ = build_tokenizer(describe(add_bos_token=True, add_eos_token=True))
    implied, _ = build_tokenizer(describe("llama-bpe"))
    assert quiet.encode("he").tokens == ["he"]
    assert loud.encode("he").tokens == ["<|im_start|>", "he", "<|im_end|>"]
    assert implied.encode("he").tokens == ["<|im_start|>", "he"]
    assert loud.encode("he", add_special_tokens=False).tokens == ["he"]


def test_a_vocabulary_that_contradicts_itself_is_damaged() -> None:
    contradictions: list[dict[str, Any]] = [
        {"merges": ["no such"]},
        {"merges": ["alone"]},
        {"token_type": [1]},
        {"eos_token_id": 10**6},
        {"tokens": []},
        {"tokens": [*PIECES[:-1], PIECES[0]]},
    ]
    for broken in contradictions:
        with pytest.raises(FileDamaged):
            build_tokenizer(describe(**broken))


@pytest.mark.parametrize(("change", "named"), [({"pre": "default"}, "default"), ({"model": "bert"}, "bert")])
def test_unknown_schemes_are_refused_by_name(change: dict[str, str], named: str) -> None:
    with pytest.raises(Unsupported, match=named):
        build_tokenizer(describe(**change))


WORDS = ["▁h", "he", "el", "ll", "lo", "hell", "▁hell", "▁hello", "▁w", "or", "▁wor", "ld", "▁world", "ello", "▁"]


def describe_sentencepiece(**more: object) -> Metadata:
    """A SentencePiece vocabulary whose merged pieces have falling scores."""
    letters = sorted(set("helowrd"))
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["<unk>", "<s>", "</s>", *byte_pieces, *WORDS, *letters]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (len(WORDS) + len(letters))
    scores = [0.0] * 259 + [-float(place) for place in range(len(WORDS))] + [-1e6] * len(letters)
    base: dict[str, object] = {
        "model": "llama",
        "tokens": pieces,
        "token_type": kinds,
        "scores": scores,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in {**base, **more}.items()}  # pyright: ignore[reportReturnType]


def join_as_sentencepiece(text: str) -> list[str]:
    """The algorithm of SentencePiece BPE: join the neighbours with the best score until none can be joined."""
    pieces = list("▁" + text.replace(" ", "▁"))
    while True:
        scored = [
            (WORDS.index(left + right), place)
            for place, (left, right) in enumerate(pairwise(pieces))
            if left + right in WORDS
        ]
        if not scored:
            return pieces
        _, place = min(scored)
        pieces[place : place + 2] = [pieces[place] + pieces[place + 1]]


@pytest.mark.parametrize("text", ["hello world", "hell", "world hello", "elloorld", " low"])
def test_sentencepiece_joins_in_the_order_of_scores(text: str) -> None:
    tokenizer, _ = build_tokenizer(describe_sentencepiece())
    assert tokenizer.encode(text).tokens == ["<s>", *join_as_sentencepiece(text)]


def test_sentencepiece_spells_strange_characters_in_bytes() -> None:
    tokenizer, _ = build_tokenizer(describe_sentencepiece())
    encoded = tokenizer.encode("hello é")
    assert encoded.tokens[-2:] == ["<0xC3>", "<0xA9>"]
    assert tokenizer.decode(encoded.ids) == "hello é"
    bare, _ = build_tokenizer(describe_sentencepiece(add_space_prefix=False))
    assert bare.encode("hello").tokens[1:] == ["hell", "o"]
