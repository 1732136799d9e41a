"""Opens the socket that the API listens on. Imports nothing heavy, so that a node has its port before it is loaded."""

import errno
import socket

BACKLOG = 2048


class AddressInUseError(Exception):
    """Raised when the address cannot be listened on; `flag` is the setting that has to change."""

    def __init__(self, host: str, port: int, *, reason: str, flag: str) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {reason}; choose another {flag} with --{flag}")
        self.host = host
        self.port = port
        self.reason = reason
        self.flag = flag


def bind(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 lets the system pick one. Raises `AddressInUseError`."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "that is no host's name"
        raise AddressInUseError(host, port, reason=reason, flag="host") from error
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        flag = "host" if error.errno == errno.EADDRNOTAVAIL else "port"
        raise AddressInUseError(host, port, reason=error.strerror or str(error), flag=flag) from error
    listener.setblocking(False)
    return listener
