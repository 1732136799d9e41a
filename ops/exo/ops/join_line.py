"""The line that brings another machine into a cluster. Pure text; `exo up` and `exo cluster` print it."""

from collections.abc import Sequence

from exo.broker import join_line
from exo.ops.banner import exo_version


def make_join_line(cluster: str, addresses: Sequence[str], *, closed: bool = False) -> str:
    """Give the command for the other machine, on which this version is installed as well."""
    return join_line.make_join_line(cluster, addresses, version=exo_version(), closed=closed)
