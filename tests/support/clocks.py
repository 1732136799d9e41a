"""Computers whose clocks are wrong: every Python process of such a node reads another time of day.

The kernel has one time of day for all namespaces, and nats-server is not Python: it keeps the right one,
which only makes the disagreement larger. Monotonic clocks stay what they are.
"""

import os
from pathlib import Path

_PATCH = """
import time

_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {seconds}
time.time_ns = lambda: _time_ns() + {seconds} * 10**9
"""


def wrong_clock(directory: Path, *, seconds: int) -> dict[str, str]:
    """Give the environment of a node whose clock is ahead by so many seconds, or behind if negative."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(_PATCH.format(seconds=seconds))
    return {"PYTHONPATH": os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])}
