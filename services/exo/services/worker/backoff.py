"""When a runner that failed is started again. Pure."""

FIRST_DELAY = 2.0
LONGEST_DELAY = 30.0
STABLE_AFTER = 60.0
"""Seconds of being ready after which earlier failures no longer count."""


def delay_before(attempt: int) -> float:
    """Give the seconds to wait before start number `attempt` (the second start is the first to wait)."""
    return min(FIRST_DELAY * 2 ** (attempt - 2), LONGEST_DELAY)


def retry_time(attempt: int, *, most: int, now: int) -> int:
    """Give the Unix time in ms of the start after failed start number `attempt`; 0 when no more are made."""
    return 0 if attempt >= most else now + round(1000 * delay_before(attempt + 1))
