"""The tokenizer rebuilt from a GGUF file, in the tokenizers library's own form.

How text is cut before merging is not in the file; it names a scheme (`tokenizer.ggml.pre`). The ones
below are checked against their models' own tokenizer.json; others are refused, because a wrong cut
gives a model that answers almost right.
"""

from collections.abc import Callable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing

from exo.runners.gguf.errors import FileDamaged, Unsupported
from exo.runners.gguf.sentencepiece import derive_merges
from exo.runners.gguf.source import Metadata
from exo.runners.gguf.vocabulary import (
    CONTROL,
    USER_DEFINED,
    Vocabulary,
    read_tokenizer_model,
    read_vocabulary,
)

_OTHER_FORMAT = "get the model in MLX or safetensors form, which brings its tokenizer.json"
_CUT_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}DIGITS"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_PATTERN = _CUT_WORDS.replace("DIGITS", "{1,3}")
_QWEN2_PATTERN = _CUT_WORDS.replace("DIGITS", "")


def build_tokenizer(metadata: Metadata) -> tuple[Tokenizer, Vocabulary]:
    """Build the tokenizer; raises `Unsupported` naming a scheme that is not known here."""
    model, scheme = read_tokenizer_model(metadata)
    vocabulary = read_vocabulary(metadata)
    if model == "gpt2":
        tokenizer, adds_bos = _build_byte_level(vocabulary, scheme), scheme in _ADDS_BOS
    elif model == "llama":
        tokenizer, adds_bos = _build_sentencepiece(vocabulary), True
    else:
        raise Unsupported(f"tokenizer model {model} is not imported", _OTHER_FORMAT)
    _add_special_tokens(tokenizer, vocabulary)
    _add_framing(tokenizer, vocabulary, adds_bos=adds_bos)
    return tokenizer, vocabulary


def _cut_by(pattern: str) -> Callable[[], pre_tokenizers.PreTokenizer]:
    def build() -> pre_tokenizers.PreTokenizer:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )

    return build


def _cut_gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _cut_digits() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), _cut_gpt2()])


_SCHEMES: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    "gpt-2": _cut_gpt2,
    "smollm": _cut_digits,
    "starcoder": _cut_digits,
    "llama-bpe": _cut_by(_LLAMA3_PATTERN),
    "llama3": _cut_by(_LLAMA3_PATTERN),
    "llama-v3": _cut_by(_LLAMA3_PATTERN),
    "qwen2": _cut_by(_QWEN2_PATTERN),
    "deepseek-r1-qwen": _cut_by(_QWEN2_PATTERN),
}
_WHOLE_PIECES = frozenset({"llama-bpe", "llama3", "llama-v3"})
"""Schemes that take a piece found whole in the vocabulary without merging."""

_ADDS_BOS = _WHOLE_PIECES
"""Schemes that prepend the first token unless the file says otherwise."""

_COMPOSED = frozenset({"qwen2", "deepseek-r1-qwen"})
"""Schemes that compose Unicode (NFC) first."""


def _build_byte_level(vocabulary: Vocabulary, scheme: str) -> Tokenizer:
    if scheme not in _SCHEMES:
        shown = scheme or "(none named)"
        known = ", ".join(sorted(_SCHEMES))
        message = f"pre-tokenizer {shown} is not one of those imported ({known})"
        raise Unsupported(message, _OTHER_FORMAT)
    if not vocabulary.merges:
        raise FileDamaged("the file holds no merges for its BPE vocabulary", _OTHER_FORMAT)
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    _check_merges(ids, vocabulary)
    model = BPE(ids, vocabulary.merges, ignore_merges=scheme in _WHOLE_PIECES)
    tokenizer = Tokenizer(model)
    if scheme in _COMPOSED:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _SCHEMES[scheme]()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _check_merges(ids: dict[str, int], vocabulary: Vocabulary) -> None:
    for left, right in vocabulary.merges:
        if left not in ids or right not in ids or left + right not in ids:
            message = f"merge {left!r} {right!r} names a piece that is not in the vocabulary"
            raise FileDamaged(message, _OTHER_FORMAT)


def _build_sentencepiece(vocabulary: Vocabulary) -> Tokenizer:
    if len(vocabulary.scores) != len(vocabulary.pieces):
        raise FileDamaged("the SentencePiece vocabulary lacks its scores", _OTHER_FORMAT)
    ids = {piece: number for number, piece in enumerate(vocabulary.pieces)}
    unknown = vocabulary.piece(vocabulary.unknown or 0)
    model = BPE(ids, derive_merges(vocabulary), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(model)
    spaces = [normalizers.Replace(" ", "▁")]
    undo = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if vocabulary.add_space_prefix:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), *spaces])
        tokenizer.decoder = decoders.Sequence([*undo, decoders.Strip(" ", 1, 0)])
    else:
        tokenizer.normalizer = normalizers.Sequence(spaces)
        tokenizer.decoder = decoders.Sequence(undo)
    return tokenizer


def _add_special_tokens(tokenizer: Tokenizer, vocabulary: Vocabulary) -> None:
    for kind, special in ((CONTROL, True), (USER_DEFINED, False)):
        pieces = [vocabulary.pieces[number] for number in vocabulary.ids_of(kind)]
        tokens = [AddedToken(piece, special=special, normalized=False) for piece in pieces]
        if special:
            tokenizer.add_special_tokens(tokens)
        else:
            tokenizer.add_tokens(tokens)
    if tokenizer.get_vocab_size() != len(vocabulary.pieces):
        message = f"{len(vocabulary.pieces)} tokens, of which some are the same text twice"
        raise FileDamaged(message, _OTHER_FORMAT)


def _add_framing(tokenizer: Tokenizer, vocabulary: Vocabulary, *, adds_bos: bool) -> None:
    wanted = adds_bos if vocabulary.add_bos is None else vocabulary.add_bos
    first = vocabulary.bos if wanted else None
    last = vocabulary.eos if vocabulary.add_eos else None
    framing = [(vocabulary.pieces[n], n) for n in (first, last) if n is not None]
    if not framing:
        return
    words = [vocabulary.piece(first), "$A", vocabulary.piece(last)]
    tokenizer.post_processor = TemplateProcessing(
        single=" ".join(word for word in words if word), special_tokens=framing
    )
