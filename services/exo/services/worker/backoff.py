"""When a runner that failed is started again. Pure."""

FIRST_DELAY = 2.0
LONGEST_DELAY = 30.0
STABLE_AFTER = 60.0
"""Seconds of being ready after which earlier failures no longer count."""


def delay_before(attempt: int) -> float:
    """Give the seconds to wait before start number `attempt` (the second start is the first to wait)."""
    return min(FIRST_DELAY * 2 ** (attempt - 2), LONGEST_DELAY)


def pause_after(attempt: int, *, most: int) -> float:
    """Give the seconds between failed start number `attempt` and the next one; 0 when no more are made."""
    return 0 if attempt >= most else delay_before(attempt + 1)
