"""Where cluster ports are: reading what people write, and listing this machine's own addresses.

Pure, but for those that list this machine. An address is `host:port`, with brackets around an IPv6 host.
"""

import ipaddress
import re
import socket
from typing import Final

import ifaddr
import msgspec

from exo.broker.peering import DEFAULT_PORT

MULTIADDRESS_HOSTS: Final = frozenset({"ip4", "ip6", "dns", "dns4", "dns6"})
_HOST_NAME: Final = re.compile(r"^(?!-)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$")


class AddressError(ValueError):
    """Raised for a text that names no address; the message says what was expected."""


class Address(msgspec.Struct, frozen=True):
    """A host (a name or a bare IP address) and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host`, `host:port`, `[v6]:port`, a bare IPv6 address, `/ip4/HOST/tcp/PORT` or `/dns/HOST/tcp/PORT`."""
    text = text.strip()
    if not text:
        raise AddressError("is empty; expected host or host:port")
    if text.startswith("/"):
        return _parse_multiaddress(text)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise AddressError("has a bracket that is not closed; expected [IPv6 address]:port")
        return Address(_check_ip(host, 6), _read_port(rest[1:]) if rest else DEFAULT_PORT)
    if text.count(":") > 1:
        return Address(_check_ip(text, 6), DEFAULT_PORT)
    host, colon, port = text.partition(":")
    return Address(_check_host(host), _read_port(port) if colon else DEFAULT_PORT)


def _parse_multiaddress(text: str) -> Address:
    kind, _, rest = text[1:].partition("/")
    host, *more = rest.split("/")
    if kind not in MULTIADDRESS_HOSTS:
        raise AddressError(f"starts with /{kind}; expected /ip4, /ip6 or /dns")
    checked = _check_ip(host, int(kind[2])) if kind.startswith("ip") else _check_host(host)
    match more:
        case []:
            return Address(checked, DEFAULT_PORT)
        case ["tcp", port]:
            return Address(checked, _read_port(port))
        case ["tcp", port, "p2p", _]:
            # The id of a libp2p peer means nothing here, but people paste whole addresses.
            return Address(checked, _read_port(port))
        case _:
            raise AddressError(f"goes on with /{'/'.join(more)}; expected /tcp/PORT")


def _check_host(host: str) -> str:
    if re.fullmatch(r"[0-9.]+", host):
        return _check_ip(host, 4)
    if len(host) > 253 or not _HOST_NAME.match(host):
        raise AddressError(f"names the host {host!r}, which is neither an IP address nor a host name")
    return host.lower()


def _check_ip(host: str, version: int) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise AddressError(f"names the host {host!r}, which is no IPv{version} address") from error
    if address.version != version:
        raise AddressError(f"names the host {host!r}, which is no IPv{version} address")
    return str(address)


def _read_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 65536:
        raise AddressError(f"has the port {text!r}; expected a number from 1 to 65535")
    return int(text)


def list_own_addresses(port: int, *, host: str) -> tuple[str, ...]:
    """Give where a port that listens on `host` (empty: everywhere) can be tried from other machines."""
    if host:
        return (str(Address(host, port)),)
    return tuple(str(Address(one, port)) for one in list_usable(list_interface_addresses()))


def list_usable(found: list[str]) -> list[str]:
    """Sort addresses of interfaces: no loopback, no IPv6 that needs a scope; IPv4 first, link-local last."""
    parsed = {ipaddress.ip_address(text) for text in found}
    usable = [
        one
        for one in parsed
        if not (one.is_loopback or one.is_unspecified or one.is_multicast or (one.version == 6 and one.is_link_local))
    ]
    return [str(one) for one in sorted(usable, key=lambda one: (one.is_link_local, one.version, int(one)))]


def list_interface_addresses() -> list[str]:
    """Give all addresses of this machine."""
    # An IPv6 address comes with its flow and scope.
    found = [one.ip for adapter in ifaddr.get_adapters() for one in adapter.ips]
    return [one if isinstance(one, str) else one[0] for one in found]


def list_hosts() -> tuple[str, ...]:
    """Give the names and addresses by which a client may call this machine, itself included, for a certificate."""
    own = {one.partition("%")[0] for one in list_interface_addresses()}
    name = socket.gethostname().lower()
    names = {"localhost", "exo", *((name,) if _HOST_NAME.match(name) else ())}
    return (*sorted(names), *sorted(own | {"127.0.0.1", "::1"}))


def plain_host(host: str) -> str:
    """Give an IPv4 address that a dual-stack socket shows as IPv6 (`::ffff:10.0.0.1`) as it is, and no scope."""
    bare = host.partition("%")[0]
    return bare.removeprefix("::ffff:") if "." in bare else bare
