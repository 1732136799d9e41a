"""The addresses of earlier peers, in a file: where to look first at the next start.

Used by `peers.py`. A file that is lost or unreadable only costs time.
"""

from pathlib import Path
from typing import Final

import msgspec
import structlog

from exo.broker.private_files import write_private

log = structlog.get_logger(__name__)

MOST_ADDRESSES_KEPT: Final = 64


def read_remembered(file: Path) -> list[str]:
    """Give the addresses, newest first; none when there is no readable file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[str])[:MOST_ADDRESSES_KEPT]
    except FileNotFoundError:
        return []
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("cannot read the addresses of earlier peers", file=str(file), reason=str(error))
        return []


def write_remembered(file: Path, addresses: list[str]) -> None:
    """Replace the file; a full disk is only worth a log line."""
    try:
        write_private(file, msgspec.json.encode(addresses))
    except OSError as error:
        log.warning("cannot remember the addresses of peers", file=str(file), reason=str(error))
