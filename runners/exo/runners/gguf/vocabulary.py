"""The vocabulary and special tokens of a GGUF file, typed. Pure."""

import msgspec

from exo.runners.gguf.errors import FileDamaged
from exo.runners.gguf.shape import get_value, require_value
from exo.runners.gguf.source import Metadata

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Values of `tokenizer.ggml.token_type`."""

_OTHER_FILE = "get the model from another source"
_END_TOKENS = frozenset({
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
    "<EOT>", "_<EOT>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
})  # fmt: skip
"""Control tokens that end an answer though the metadata may not say so; as llama.cpp does."""


class Vocabulary(msgspec.Struct, frozen=True, kw_only=True):
    """Pieces by id, their types, and the ids with a meaning (None: the model has none such)."""

    pieces: list[str]
    types: list[int]
    scores: list[float]
    merges: list[tuple[str, str]]
    bos: int | None
    eos: int | None
    unknown: int | None
    padding: int | None
    ends: tuple[int, ...]
    add_bos: bool | None
    """None when the file does not say."""

    add_eos: bool
    add_space_prefix: bool

    def ids_of(self, kind: int) -> list[int]:
        """Give the ids of all tokens of a type."""
        return [number for number, own in enumerate(self.types) if own == kind]

    def piece(self, number: int | None) -> str | None:
        """Give a token's text, None for no token."""
        return None if number is None else self.pieces[number]


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Read and cross-check `tokenizer.ggml.*`; raises `FileDamaged`."""
    pieces = [str(piece) for piece in _get_list(metadata, "tokens")]
    if not pieces:
        raise FileDamaged("the file holds no vocabulary", _OTHER_FILE)
    types = [int(kind) for kind in _get_list(metadata, "token_type")] or [NORMAL] * len(pieces)
    if len(types) != len(pieces):
        raise FileDamaged(f"{len(pieces)} tokens but {len(types)} token types", _OTHER_FILE)
    ids = {
        name: _get_id(metadata, f"{name}_token_id", len(pieces))
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding")
    }
    named_ends = [ids[name] for name in ("eos", "eot", "eom")]
    known_ends = [
        number
        for number, (piece, kind) in enumerate(zip(pieces, types, strict=True))
        if kind == CONTROL and piece in _END_TOKENS
    ]
    ends = [number for number in [*named_ends, *known_ends] if number is not None]
    return Vocabulary(
        pieces=pieces,
        types=types,
        scores=[float(score) for score in _get_list(metadata, "scores")],
        merges=[_split_merge(str(merge)) for merge in _get_list(metadata, "merges")],
        bos=ids["bos"],
        eos=ids["eos"],
        unknown=ids["unknown"],
        padding=ids["padding"],
        ends=tuple(dict.fromkeys(ends)),
        add_bos=get_value(metadata, "tokenizer.ggml.add_bos_token", bool),
        add_eos=get_value(metadata, "tokenizer.ggml.add_eos_token", bool) or False,
        add_space_prefix=get_value(metadata, "tokenizer.ggml.add_space_prefix", bool) is not False,
    )


def read_tokenizer_model(metadata: Metadata) -> tuple[str, str]:
    """Give `tokenizer.ggml.model` and `tokenizer.ggml.pre` (empty when absent)."""
    model = require_value(metadata, "tokenizer.ggml.model", str)
    return model, get_value(metadata, "tokenizer.ggml.pre", str) or ""


def _get_list(metadata: Metadata, name: str) -> list[int | float | bool | str]:
    value = metadata.get(f"tokenizer.ggml.{name}", [])
    if isinstance(value, list):
        return value
    raise FileDamaged(f"tokenizer.ggml.{name} is no array", _OTHER_FILE)


def _get_id(metadata: Metadata, name: str, count: int) -> int | None:
    number = get_value(metadata, f"tokenizer.ggml.{name}", int)
    if number is not None and not 0 <= number < count:
        raise FileDamaged(f"{name} is {number}, outside the vocabulary of {count}", _OTHER_FILE)
    return number


def _split_merge(merge: str) -> tuple[str, str]:
    # The first character may be a space that belongs to the left piece.
    left, space, right = merge[1:].partition(" ")
    if not space or not right:
        raise FileDamaged(f"merge {merge!r} does not name two pieces", _OTHER_FILE)
    return merge[0] + left, right
