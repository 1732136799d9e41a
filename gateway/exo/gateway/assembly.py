"""Chunks in any order and any number of times in, each chunk once and in order out. Pure.

A relay owns one of these per answer. Chunks come live, and again from repairs and re-publications.
"""

from exo.streams.chunks import TERMINAL, Admitted, Chunk, Failed, Prefill

_BEFORE_OUTPUT = (Admitted, Prefill)


class Assembly:
    """The contiguous beginning of one answer, and what arrived ahead of a gap.

    Only the newest attempt counts; once output of an attempt was handed out it cannot be taken back,
    so that a newer attempt is ignored from then on.
    """

    __slots__ = ("_ahead", "attempt", "ended", "next_index", "output_begun")

    def __init__(self) -> None:
        self.attempt = 0
        self.next_index = 0
        self.ended = False
        self.output_begun = False
        self._ahead: dict[int, Chunk] = {}

    @property
    def has_gap(self) -> bool:
        """Whether chunks wait for one that has not arrived."""
        return bool(self._ahead)

    def add(self, chunk: Chunk, ready: list[Chunk]) -> bool:
        """Take one chunk in; appends to `ready` what is in order now. Gives whether anything was appended."""
        if self.ended or not self._is_newest(chunk) or chunk.index < self.next_index:
            return False
        if chunk.index > self.next_index:
            self._ahead[chunk.index] = chunk
            return False
        self._hand_out(chunk, ready)
        while self._ahead and not self.ended:
            following = self._ahead.pop(self.next_index, None)
            if following is None:
                break
            self._hand_out(following, ready)
        return True

    def expect(self, attempt: int) -> None:
        """Let only this attempt and later ones count, unless output has begun."""
        if attempt > self.attempt and not self.output_begun:
            self._turn_to(attempt)

    def fail(self, code: str, message: str, ready: list[Chunk]) -> bool:
        """End the answer with an error of our own, unless it has ended; gives whether it did."""
        if self.ended:
            return False
        self._hand_out(Failed(self.attempt, self.next_index, code, message), ready)
        return True

    def _is_newest(self, chunk: Chunk) -> bool:
        if chunk.attempt > self.attempt:
            if self.output_begun:
                return False
            self._turn_to(chunk.attempt)
        return chunk.attempt == self.attempt

    def _turn_to(self, attempt: int) -> None:
        self.attempt = attempt
        self.next_index = 0
        self._ahead.clear()

    def _hand_out(self, chunk: Chunk, ready: list[Chunk]) -> None:
        ready.append(chunk)
        self.next_index += 1
        if isinstance(chunk, TERMINAL):
            self.ended = True
            self._ahead.clear()
        elif not self.output_begun and not isinstance(chunk, _BEFORE_OUTPUT):
            self.output_begun = True
