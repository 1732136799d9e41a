"""Detaching by a double fork, in real processes."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

BEGIN = (
    "import os, sys, time; from pathlib import Path; from exo.ops.daemon import run_detached; pid = Path(sys.argv[1])\n"
)


def run(tmp_path: Path, body: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that detaches `start(when_ready)`; its stdout closes when the waiting process ends."""
    program = BEGIN + textwrap.dedent(body) + "\nsys.exit(run_detached(start))"
    return subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "pid")], capture_output=True, text=True, timeout=30, check=False
    )


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"process {pid} is still there"
        os.sched_yield()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
def test_the_caller_returns_when_the_daemon_is_ready(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        def start(when_ready):
            print("nobody hears this")
            pid.write_text(f"{os.getpid()} {os.getsid(0)} {os.getcwd()} {os.readlink('/proc/self/fd/1')}")
            when_ready(["ready at x"])
            deadline = time.monotonic() + 20
            while not pid.with_name("end").exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            return 0
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ready at x\n", "")
    pid, session, directory, stdout = (tmp_path / "pid").read_text().split()
    assert Path(f"/proc/{pid}").exists()
    assert session != str(os.getsid(0))
    assert session != pid
    assert (directory, stdout) == ("/", "/dev/null")
    (tmp_path / "end").touch()
    wait_until_gone(int(pid))


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        (
            """
            from exo.ops.errors import NoNodeError
            def start(when_ready):
                raise NoNodeError("it is in use", remedy="stop that one")
            """,
            3,
            "error: it is in use; stop that one",
        ),
        ("def start(when_ready): raise ValueError('odd')", 1, "error: exo could not start: ValueError('odd')"),
        ("def start(when_ready): os._exit(9)", 1, "error: exo died while it started"),
        ("def start(when_ready): return 4", 4, "exo stopped before it was ready"),
    ],
)
def test_the_caller_learns_that_it_failed(tmp_path: Path, body: str, code: int, text: str) -> None:
    done = run(tmp_path, body)
    assert (done.returncode, done.stdout) == (code, "")
    assert text in done.stderr
