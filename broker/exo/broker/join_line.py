"""The command that brings another machine into this cluster. Pure text.

Used by `findings.py` for a node that found nobody, and by the commands that print it.
"""

import re
import shlex
from collections.abc import Iterable
from typing import Final

_LOOPBACK: Final = re.compile(r"^(127\.|\[?::1)")


def make_join_line(cluster: str, addresses: Iterable[str], *, version: str, closed: bool = False) -> str:
    """Give the command for the other machine: the cluster's name unless it is the default, and where to dial.

    Without an address that another machine reaches it relies on multicast. Of a `closed` cluster it
    names the secret's place, never the secret. The default name is the `version`.
    """
    first = "exo cluster join SECRET && " if closed else ""
    words = ["exo", "up"]
    if cluster != version:
        words += ["--namespace", cluster]
    reachable = [address for address in addresses if not _LOOPBACK.match(address)]
    for address in reachable[:1]:
        words += ["--join", address]
    return first + shlex.join(words)
