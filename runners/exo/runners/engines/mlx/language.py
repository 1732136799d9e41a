"""The words of a model: its template, its tokenizer, the tokens that end an answer, its markers."""

import threading
from collections.abc import Callable
from typing import Any, cast

from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import Tokenizer

from exo.runners.engines.engine import Markers, Prompt, RequestRefusedError
from exo.runners.text.detokenize import Detokenization
from exo.runners.text.template import ChatTemplate, Rendered, TemplateRefused
from exo.streams.codes import Code
from exo.streams.requests import GenerationRequest


class Language:
    """Renders and tokenises requests, of whatever length: the reception judges that. Thread-safe."""

    def __init__(self, tokenizer: TokenizerWrapper, vocabulary_size: int) -> None:
        self._vocabulary_size = vocabulary_size
        self._encode = _choose_encoder(tokenizer)
        self._template = ChatTemplate(_choose_renderer(tokenizer))
        self.detokenization = Detokenization(
            lambda tokens: tokenizer.decode(list(tokens), skip_special_tokens=False), _find_backend(tokenizer)
        )
        self.end_tokens: tuple[int, ...] = tuple(sorted(tokenizer.eos_token_ids))
        self.markers = Markers(
            think_start=tokenizer.think_start or "",
            think_end=tokenizer.think_end or "",
            tool_start=tokenizer.tool_call_start or "",
            tool_end=tokenizer.tool_call_end or "",
            tool_parser=tokenizer.init_kwargs.get("tool_parser_type") or "",
        )

    def render(self, request: GenerationRequest) -> Prompt:
        """Give the request's tokens. Raises `RequestRefusedError`."""
        try:
            rendered = self._template.render(request)
        except TemplateRefused as refusal:
            raise RequestRefusedError(Code.INVALID_REQUEST, str(refusal)) from refusal
        tokens = self._encode(rendered)
        self._check_bias(request)
        start = self.markers.think_start
        return Prompt(tuple(tokens), rendered.text, bool(start) and rendered.text.rstrip().endswith(start))

    def _check_bias(self, request: GenerationRequest) -> None:
        strange = [token for token in request.sampling.logit_bias if not 0 <= token < self._vocabulary_size]
        if strange:
            message = f"logit_bias names token {strange[0]}; this model's tokens are 0 to {self._vocabulary_size - 1}"
            raise RequestRefusedError(Code.INVALID_REQUEST, message)


def _choose_encoder(tokenizer: TokenizerWrapper) -> Callable[[Rendered], list[int]]:
    backend = _find_backend(tokenizer)
    if backend is not None:
        # Straight to Rust: it releases the GIL, and transformers' own method is not thread-safe.
        return lambda rendered: backend.encode(rendered.text, add_special_tokens=rendered.special).ids
    lock = threading.Lock()

    def encode(rendered: Rendered) -> list[int]:
        with lock:
            return tokenizer.encode(rendered.text, add_special_tokens=rendered.special)

    return encode


def _choose_renderer(tokenizer: TokenizerWrapper) -> Callable[..., str] | None:
    if not tokenizer.has_chat_template:
        return None

    def render(messages: list[dict[str, Any]], **keywords: Any) -> str:
        return cast("str", tokenizer.apply_chat_template(messages, tokenize=False, **keywords))

    return render


def _find_backend(tokenizer: TokenizerWrapper) -> Tokenizer | None:
    return getattr(tokenizer, "backend_tokenizer", None)
