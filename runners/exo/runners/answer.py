"""One running request: engine steps in, numbered chunks out.

Owned by the engine thread. Text goes through the parser (thinking, tool calls), then, outside of
both, through the stop strings; all text of one kind in one step becomes one chunk.
"""

import time

import structlog

from exo.runners.admission import Ticket
from exo.runners.engines.engine import EndStep, Markers, PrefillStep, Prompt, TokenStep
from exo.runners.text.parse.parser import Marking, TextParser
from exo.runners.text.parse.pieces import CallArguments, CallEnd, CallStart, Content, Piece, Thought
from exo.runners.text.stop import StopStrings
from exo.streams import chunks as c
from exo.streams.requests import GenerationRequest

log = structlog.get_logger(__name__)


class Answer:
    """Turns the steps of one sequence into chunks; chunk 0 was `Admitted`."""

    def __init__(self, ticket: Ticket, prompt: Prompt, markers: Markers) -> None:
        request = ticket.generate.request
        self.ticket = ticket
        self._attempt = ticket.generate.attempt
        self._prompt_tokens = len(prompt.tokens)
        marking = mark(request, markers)
        self._parser = TextParser(marking, reasoning_open=prompt.reasoning_open and bool(marking.think_end))
        self._stops = StopStrings(request.stop) if request.stop else None
        self._is_single_call = not request.tool_choice.parallel
        self._ledger = TokenLedger(keep_logprobs=request.logprobs)
        self._chunks: list[c.Chunk] = []
        self._index = 1
        self._calls = 0
        self._completion = 0
        self._reasoning = 0
        self._first_token = 0.0
        self._ending: c.FinishReason | None = None

    @property
    def is_over(self) -> bool:
        """Whether the answer ends here although the engine would go on."""
        return self._ending is not None

    def take_prefill(self, step: PrefillStep) -> None:
        self._add(c.Prefill(self._attempt, self._index, step.processed, step.total))

    def take_token(self, step: TokenStep) -> None:
        """Count a token and pass on what its text makes certain."""
        if not self._completion:
            self._first_token = time.monotonic()
        self._completion += 1
        was_thinking = self._parser.is_thinking
        self._ledger.enter(step.logprob)
        self._pass_on(self._parser.feed(step.text))
        is_thinking = self._parser.is_thinking
        self._reasoning += was_thinking or is_thinking
        if was_thinking != is_thinking:
            self._ledger.leave()

    def take_end(self, step: EndStep) -> None:
        """Pass on what was held back and close the answer."""
        self._pass_on(self._parser.feed(step.text))
        if not self.is_over:
            self._pass_on(self._parser.finish())
        if not self.is_over:
            self._release()
            self._ending = "tool_calls" if self._calls and step.reason == "stop" else step.reason

    def finish(self, *, peak_memory: int) -> None:
        """Add the last chunk of an answer that is over."""
        assert self._ending is not None
        count, logprobs = self._ledger.leave()
        if logprobs and self._matched is None and not self._calls:
            self._add(c.Text(self._attempt, self._index, "", count, logprobs))
        usage = c.Usage(prompt=self._prompt_tokens, completion=self._completion, reasoning=self._reasoning)
        statistics = self._measure(peak_memory)
        self._add(c.Done(self._attempt, self._index, self._ending, usage, statistics, self._matched))

    def fail(self, code: str, message: str) -> None:
        """Add the last chunk of an answer that broke off."""
        self._add(c.Failed(self._attempt, self._index, code, message))

    def drain(self) -> list[c.Chunk]:
        """Give the chunks since the last call."""
        drained, self._chunks = self._chunks, []
        return drained

    def _pass_on(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            if self.is_over:
                return
            match piece:
                case Content(text):
                    self._say(text)
                case Thought(text):
                    self._think(text)
                case CallStart(name):
                    self._release()
                    self._ledger.leave()
                    self._start_call(name)
                case CallArguments(text):
                    self._add_arguments(text)
                case CallEnd():
                    if self._is_single_call:
                        self._ending = "tool_calls"

    @property
    def _matched(self) -> str | None:
        return self._stops.matched if self._stops else None

    def _say(self, text: str) -> None:
        if self._stops is not None:
            text = self._stops.push(text)
            if self._stops.matched is not None:
                self._ending = "tool_calls" if self._calls else "stop"
        if text:
            self._write(c.Text, text)

    def _release(self) -> None:
        """Pass on what the stop strings held back: something else follows."""
        if self._stops is not None and (text := self._stops.flush()):
            self._write(c.Text, text)

    def _think(self, text: str) -> None:
        self._release()
        self._write(c.Reasoning, text)

    def _write(self, kind: type[c.Text | c.Reasoning], text: str) -> None:
        """Add a piece of text, to the chunk before it if that is of the same kind and step."""
        tokens, logprobs = self._ledger.leave()
        last = self._chunks[-1] if self._chunks else None
        if isinstance(last, kind):
            joined = last.text + text
            self._chunks[-1] = kind(last.attempt, last.index, joined, last.tokens + tokens, last.logprobs + logprobs)
        else:
            self._add(kind(self._attempt, self._index, text, tokens, logprobs))

    def _start_call(self, name: str) -> None:
        call_id = f"call_{self.ticket.task.replace('-', '')[:20]}{self._calls:04d}"
        self._add(c.ToolCallStarted(self._attempt, self._index, self._calls, call_id, name))
        self._calls += 1

    def _add_arguments(self, text: str) -> None:
        tokens, _ = self._ledger.leave()
        self._add(c.ToolCallArguments(self._attempt, self._index, self._calls - 1, text, tokens))

    def _add(self, chunk: c.Chunk) -> None:
        self._chunks.append(chunk)
        self._index += 1

    def _measure(self, peak_memory: int) -> c.Statistics:
        now = time.monotonic()
        ticket = self.ticket
        first = self._first_token or now
        prefill, decode = first - ticket.started, now - first
        return c.Statistics(
            queue_time=ticket.started - ticket.arrived,
            prefill_time=prefill,
            decode_time=decode,
            prompt_tokens_per_second=self._prompt_tokens / prefill if prefill > 0 else 0,
            generated_tokens_per_second=(self._completion - 1) / decode if self._completion > 1 and decode > 0 else 0,
            peak_memory=peak_memory,
        )


class TokenLedger:
    """The tokens drawn since text was last passed on, with their log probabilities.

    The parser and the stop strings hold text back, so tokens wait here for the chunk they go with;
    those of a marker or of a stop string go with none.
    """

    def __init__(self, *, keep_logprobs: bool) -> None:
        self._keep_logprobs = keep_logprobs
        self._logprobs: list[c.TokenLogprob] = []
        self._count = 0

    def enter(self, logprob: c.TokenLogprob | None) -> None:
        self._count += 1
        if logprob is not None and self._keep_logprobs:
            self._logprobs.append(logprob)

    def leave(self) -> tuple[int, tuple[c.TokenLogprob, ...]]:
        """Give the number of waiting tokens and, if anybody asked, their log probabilities."""
        count, logprobs = self._count, tuple(self._logprobs)
        self._count = 0
        self._logprobs.clear()
        return count, logprobs


def mark(request: GenerationRequest, markers: Markers) -> Marking:
    """Say what to look for in the answer: calls only if it may have any, nothing after a plain prompt."""
    if request.prompt is not None:
        return Marking()
    may_call = bool(request.tools) and request.tool_choice.mode != "none"
    return Marking(
        think_start=markers.think_start,
        think_end=markers.think_end,
        tool_start=markers.tool_start if may_call else "",
        tool_end=markers.tool_end if may_call else "",
        tool_format=markers.tool_parser,
        tools=request.tools,
    )
