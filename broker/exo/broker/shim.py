"""A tiny parent for nats-server that dies with the node process, however that ends.

Started by `process.py` as a script, without the site module, so that it costs some 15 ms. Prints the
server's pid, then obeys one letter per order on stdin: `h` read the configuration again, `u` lame
duck, `t` terminate, `k` kill. The end of stdin means that the node is gone: terminate, then kill.
Exits with the server's code.
PDEATHSIG would be shorter but fires when the *thread* that forked ends, and macOS has none.
"""

import os
import signal
import subprocess
import sys
import threading

GRACE = 3.0
ORDERS = {b"h": signal.SIGHUP, b"u": signal.SIGUSR2, b"t": signal.SIGTERM, b"k": signal.SIGKILL}


def obey(server: "subprocess.Popen[bytes]") -> None:
    """Pass on orders until stdin ends, then stop the server."""
    while order := os.read(0, 1):
        if order in ORDERS and server.poll() is None:
            server.send_signal(ORDERS[order])
    server.terminate()
    try:
        server.wait(GRACE)
    except subprocess.TimeoutExpired:
        server.kill()


def main(command: list[str]) -> int:
    """Run the server; gives its exit code, or 128 + the signal that ended it."""
    # Our stdout stays ours: a server that outlives us must not keep the node's pipe open.
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)
    # Only after the start, because an ignored signal is inherited.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.write(1, f"{server.pid}\n".encode())
    threading.Thread(target=obey, args=(server,), daemon=True).start()
    code = server.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
