"""A tokenizer without a vocabulary file: a token's number *is* its bytes.

Words are cut into pieces of up to four letters with the blank before them; every other ASCII
character is one token, and each byte of any other character is one, so that answers in Chinese or
with emoji pass through half characters as they do with real models. Numbers below 256 are special.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

SPECIAL = {"<|im_start|>": 1, "<|im_end|>": 2, "<think>": 3, "</think>": 4, "<tool_call>": 5, "</tool_call>": 6}
END_OF_TURN = SPECIAL["<|im_end|>"]
_SPELLING = {number: text.encode() for text, number in SPECIAL.items()}
_PIECE = re.compile(
    rb" ?[A-Za-z0-9]{1,4}|" + "|".join(map(re.escape, SPECIAL)).encode() + rb"|[\x00-\xff]",
    re.DOTALL,
)
_SPECIAL_BYTES = {text.encode(): number for text, number in SPECIAL.items()}
_LEAD = b"\x01"
"""Stands before the bytes of a token, so that leading zero bytes count and no number is below 256."""


@lru_cache(maxsize=1 << 16)
def _number(piece: bytes) -> int:
    return _SPECIAL_BYTES.get(piece) or int.from_bytes(_LEAD + piece, "big")


def iterate_tokens(text: str) -> Iterator[int]:
    """Give the tokens of a text one by one, each when it is asked for."""
    return (_number(match[0]) for match in _PIECE.finditer(text.encode("utf-8", "replace")))


def encode(text: str) -> tuple[int, ...]:
    """Give all tokens of a text."""
    return tuple(map(_number, _PIECE.findall(text.encode("utf-8", "replace"))))


def read_bytes(token: int) -> bytes:
    """Give the bytes of one token."""
    if token < len(_LEAD) << 8:
        return _SPELLING.get(token, b"")
    return token.to_bytes((token.bit_length() + 7) // 8, "big")[1:]
