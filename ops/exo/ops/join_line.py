"""The lines that bring another machine into this cluster. Pure text; `exo up` and `exo cluster` print them."""

import re
import shlex
from collections.abc import Sequence

from exo.ops.banner import exo_version

_LOOPBACK = re.compile(r"^(127\.|\[?::1)")


def make_join_line(cluster: str, addresses: Sequence[str], *, closed: bool = False) -> str:
    """Give the command for the other machine: the cluster's name unless it is the default, and where to dial.

    Without an address that another machine reaches it relies on multicast. Of a `closed` cluster it
    names the secret's place, never the secret.
    """
    first = "exo cluster join SECRET && " if closed else ""
    words = ["exo", "up"]
    if cluster != exo_version():
        words += ["--namespace", cluster]
    reachable = [address for address in addresses if not _LOOPBACK.match(address)]
    for address in reachable[:1]:
        words += ["--join", address]
    return first + shlex.join(words)
