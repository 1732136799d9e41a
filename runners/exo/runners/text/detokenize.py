"""Tokens back to text, one at a time and never half a character.

A token is a run of bytes, not of characters. For the two families of tokenizers that nearly all
models use, the bytes of each token are tabulated once and decoded incrementally, in time linear in
the answer; any other tokenizer is asked for longer and longer stretches. Needs only `tokenizers`.
"""

import codecs
import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from tokenizers import Tokenizer

Decode = Callable[[Sequence[int]], str]
_REPLACEMENT = "\ufffd"
_SPACE_MARK = "▁"
_SENTENCEPIECE_STEPS = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}


class Detokenizer(Protocol):
    """The text of one answer."""

    def add(self, token: int) -> str:
        """Give the whole characters that this token completes; may be empty."""
        ...

    def flush(self) -> str:
        """Give what was held back at the end of the answer; bytes of half a character are dropped."""
        ...


class Detokenization:
    """What detokenisers of one model share; built once, thread-safe."""

    def __init__(self, decode: Decode, tokenizer: Tokenizer | None) -> None:
        """`decode` must keep special tokens; `tokenizer` is None where there is none of that library."""
        self._decode = decode
        self._table: tuple[bytes, ...] | None = None
        self._strips = False
        if tokenizer is not None:
            self._read(tokenizer)

    def start(self, *, continues: bool = False) -> Detokenizer:
        """Begin an answer. `continues`: it goes on in the middle of a text, so a first space counts."""
        if self._table is None:
            return _StretchDetokenizer(self._decode)
        return _TableDetokenizer(self._table, strip=self._strips and not continues)

    def read_bytes(self, token: int) -> bytes:
        """Give the bytes of one token; of half a character, when the table is known."""
        if self._table is None:
            return self._decode([token]).encode()
        return self._table[token] if token < len(self._table) else b""

    def _read(self, tokenizer: Tokenizer) -> None:
        steps = _list_steps(tokenizer)
        kinds = {step["type"] for step in steps}
        self._strips = any(step["type"] == "Strip" and step.get("start") for step in steps)
        if kinds == {"ByteLevel"}:
            self._table = _tabulate(tokenizer, _read_byte_level)
        elif kinds and kinds <= _SENTENCEPIECE_STEPS and {"Replace", "Metaspace"} & kinds:
            self._table = _tabulate(tokenizer, _read_sentencepiece)
            self._strips |= "Metaspace" in kinds


class _TableDetokenizer:
    def __init__(self, table: tuple[bytes, ...], *, strip: bool) -> None:
        self._table = table
        self._strip = strip
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        # A model's embedding may be padded beyond its vocabulary; such tokens say nothing.
        text = self._decoder.decode(self._table[token] if token < len(self._table) else b"")
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        return ""


class _StretchDetokenizer:
    """Decodes from the last whole character on, with the tokens before it for context."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._tokens: list[int] = []
        self._context = 0
        self._shown = 0

    def add(self, token: int) -> str:
        self._tokens.append(token)
        before = self._decode(self._tokens[self._context : self._shown])
        text = self._decode(self._tokens[self._context :])
        if len(text) <= len(before) or text.endswith(_REPLACEMENT):
            return ""
        self._context, self._shown = self._shown, len(self._tokens)
        return text[len(before) :]

    def flush(self) -> str:
        before = self._decode(self._tokens[self._context : self._shown])
        return self._decode(self._tokens[self._context :])[len(before) :].rstrip(_REPLACEMENT)


def _list_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Flatten the tokenizer's decoder into its steps."""
    decoder = tokenizer.decoder
    if decoder is None:
        return []
    root = cast("dict[str, Any]", json.loads(decoder.__getstate__()))
    return root["decoders"] if root["type"] == "Sequence" else [root]


def _tabulate(tokenizer: Tokenizer, read: Callable[[str], bytes]) -> tuple[bytes, ...]:
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    table = [b""] * (max(vocabulary.values(), default=-1) + 1)
    for piece, number in vocabulary.items():
        table[number] = read(piece)
    for number, token in tokenizer.get_added_tokens_decoder().items():
        # Added tokens are spelled as text, not in the vocabulary's notation.
        table[number] = token.content.encode()
    return tuple(table)


def _list_byte_characters() -> dict[str, int]:
    """GPT-2's spelling of bytes: the printable ones as themselves, the others from U+0100 on."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    spelled = {chr(byte): byte for byte in shown}
    return spelled | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTE_CHARACTERS = _list_byte_characters()


def _read_byte_level(piece: str) -> bytes:
    if all(character in _BYTE_CHARACTERS for character in piece):
        return bytes(_BYTE_CHARACTERS[character] for character in piece)
    return piece.encode()


def _read_sentencepiece(piece: str) -> bytes:
    if len(piece) == len("<0x00>") and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(_SPACE_MARK, " ").encode()
