"""A line between two programs that a test can make slow, lossy or dead. The work is done in `proxy_main.py`."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO, cast

_SCRIPT = Path(__file__).with_name("proxy_main.py")
_STOP_SECONDS = 10


class Proxy:
    """A TCP proxy in a process of its own; a context manager.

    `port` leads to `to` (`host:port`). `listen_in` and `enter` are commands that run another one in the
    network namespace to listen in, and in that to connect from; without them both are the test's own.
    """

    def __init__(
        self, to: str, *, listen: str = "127.0.0.1:0", listen_in: Sequence[str] = (), enter: Sequence[str] = ()
    ) -> None:
        command = [*listen_in, sys.executable, "-I", "-S", str(_SCRIPT), "--listen", listen, "--to", to, "--", *enter]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._resets = 0
        self.to = to
        self.port = int(self._hear())

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def slow(self, *, delay: float, jitter: float = 0) -> None:
        """Delay everything by `delay` to `delay + jitter` seconds; order is kept."""
        self._tell(delay=delay, jitter=jitter)

    def lose(self, share: float, *, stall: float = 0.3) -> None:
        """Let a share of the pieces come `stall` seconds late, and what is behind them with them."""
        self._tell(loss=share, stall=stall)

    def cut(self) -> None:
        """Let nothing pass, in silence."""
        self._tell(cut=True)

    def refuse(self) -> None:
        """Reset every connection, and each new one."""
        self._resets += 1
        self._tell(refuse=True, resets=self._resets)

    def reset(self) -> None:
        """Reset every connection; new ones are welcome."""
        self._resets += 1
        self._tell(resets=self._resets)

    def heal(self) -> None:
        """Be a good line again; what was held back arrives."""
        self._tell(delay=0, jitter=0, loss=0, cut=False, refuse=False)

    def _tell(self, **faults: float | bool) -> None:
        stdin = cast("TextIO", self._process.stdin)
        stdin.write(json.dumps(faults) + "\n")
        stdin.flush()
        assert self._hear() == "ok"

    def _hear(self) -> str:
        line = cast("TextIO", self._process.stdout).readline().strip()
        assert line, f"the proxy to {self.to} ended with {self._process.wait(_STOP_SECONDS)}"
        return line

    def stop(self) -> None:
        """End it and all its connections; safe to call twice."""
        cast("TextIO", self._process.stdin).close()
        self._process.wait(_STOP_SECONDS)
        cast("TextIO", self._process.stdout).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
