"""Subject patterns as NATS matches them: `*` is one token, a last `>` is one or more.

Used by `MemoryBus` and by whoever sorts deliveries of a wildcard subscription; never does I/O.
"""

import re
from functools import cache

KEY = re.compile(r"^[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*$")


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject is covered by a pattern."""
    return pattern == subject or _compile(pattern).fullmatch(subject) is not None


def check_key(key: str) -> str:
    """Give the key back; `ValueError` when no bucket can hold it."""
    if not KEY.match(key):
        raise ValueError(f"not a key: {key!r}")
    return key


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    tokens = pattern.split(".")
    tail = tokens[-1] == ">"
    parts = ["[^.]+" if part == "*" else re.escape(part) for part in (tokens[:-1] if tail else tokens)]
    return re.compile(r"\.".join([*parts, ".+"] if tail else parts))
