"""Moving a bus to a hub by whichever of its addresses works. Used by `cluster.py`."""

from typing import Final

import structlog
from msgspec.structs import replace

from exo.broker.addresses import Address, AddressError, parse_address
from exo.broker.connect import Connection
from exo.broker.errors import BusUnavailableError, PermissionDeniedError
from exo.broker.peering import Peer
from exo.broker.policy import ConnectionSettings

log = structlog.get_logger(__name__)

ATTEMPT_TIMEOUT: Final = 3.0
"""Seconds for one address, from the connection to the complete session behind it."""


def list_targets(peer: Peer) -> list[str]:
    """Give where the hub's message server may answer (`host:port`), likeliest first.

    Where its cluster port was reached, its other port is reached too, more often than not.
    """
    advertised = peer.hello.hub_addresses
    try:
        host, port = parse_address(peer.address).host, parse_address(advertised[0]).port
    except (AddressError, IndexError):
        return list(advertised)
    return list(dict.fromkeys((str(Address(host, port)), *advertised)))


async def reach(connection: Connection, targets: list[str], *, settings: ConnectionSettings) -> None:
    """Move to the first target that works; `BusUnavailableError` with every reason when none does."""
    scheme = "nats" if settings.tls is None else "tls"
    failures: list[str] = []
    for target in targets:
        there = replace(settings, url=f"{scheme}://{target}", open_timeout=ATTEMPT_TIMEOUT)
        try:
            await connection.move(there)
        except (BusUnavailableError, PermissionDeniedError) as error:
            failures.append(str(error))
            log.info("the hub does not answer there", target=target, reason=str(error))
        else:
            return
    raise BusUnavailableError("; ".join(failures) or "the hub has told no address")
