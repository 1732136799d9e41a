"""Speed and faults of the scripted engine, from `EngineOptions.script`. Prompts cannot set them."""

import msgspec

NEVER = -1


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the engine behaves.

    Rates are tokens per second of one sequence, 0 for as fast as possible. The faults count the
    tokens of one answer: `crash_after_tokens=5` kills the process when an answer should get its
    sixth token. Warm-up draws two tokens, so that smaller counts strike before the runner is ready.
    """

    tokens_per_second: float = 0
    prefill_tokens_per_second: float = 0
    load_seconds: float = 0
    fail_load: int = 0
    """1: `load` raises."""
    hang_load: int = 0
    """1: `load` never returns."""
    crash_after_tokens: int = NEVER
    """The process kills itself with SIGKILL."""
    hang_after_tokens: int = NEVER
    """`step` never returns."""
    raise_after_tokens: int = NEVER
    """This one sequence gets a `FaultStep`."""
    break_after_tokens: int = NEVER
    """`step` raises: the engine as a whole is broken."""

    @property
    def has_faults(self) -> bool:
        counts = (self.crash_after_tokens, self.hang_after_tokens, self.raise_after_tokens, self.break_after_tokens)
        return any(count != NEVER for count in counts)


def read_script(values: dict[str, float]) -> Script:
    """Read the numbers of `EngineOptions.script`; `ValueError` names what is unknown or no number."""
    try:
        return msgspec.convert(values, Script, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(Script.__struct_fields__)
        raise ValueError(f"the script of the scripted engine is wrong: {error}; known are {known}") from error
