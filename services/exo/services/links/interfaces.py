"""Which network interface an address is on, and of what kind it is.

Linux tells by `/sys/class/net`, macOS by `networksetup -listallhardwareports`.
"""

import ipaddress
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import psutil

from exo.services.links.apple import parse_hardware_ports
from exo.services.telemetry.commands import ask
from exo.streams.links import LinkKind

_NET: Final = Path("/sys/class/net")
_ARP_ETHERNET: Final = 1
_VIRTUAL: Final = ("docker", "veth", "virbr", "tun", "tap", "wg", "tailscale", "utun", "zt")


class Interface(msgspec.Struct, frozen=True):
    """One that has an address."""

    name: str
    kind: LinkKind


def read_interfaces() -> dict[str, Interface]:
    """Give the interface of each own address. May take a while on a Mac: not for the event loop."""
    ports = parse_hardware_ports(ask("networksetup", "-listallhardwareports")) if sys.platform == "darwin" else None
    found: dict[str, Interface] = {}
    for name, addresses in psutil.net_if_addrs().items():
        kind = classify_mac(name, ports) if ports is not None else classify_linux(name)
        for address in addresses:
            if address.family.name in {"AF_INET", "AF_INET6"}:
                found[bare(address.address)] = Interface(name, kind)
    return found


def find_interface(interfaces: Mapping[str, Interface], *, local: str, remote: str) -> Interface:
    """Give the interface of a pair of addresses; what stays on this machine goes over loopback whatever its address."""
    if bare(remote) in interfaces or _is_loopback(remote):
        return Interface("lo", "loopback")
    return interfaces.get(bare(local), Interface("", "other"))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(bare(address)).is_loopback
    except ValueError:
        return False


def bare(address: str) -> str:
    """Give an address without its zone: `fe80::1%en0` is on one interface only, but psutil and sockets differ."""
    plain = address.partition("%")[0]
    return plain.removeprefix("::ffff:") if plain.count(".") == 3 else plain


def classify_linux(name: str, *, net: Path = _NET) -> LinkKind:
    """Tell by the kernel's files what kind an interface is."""
    device = net / name
    if name == "lo":
        return "loopback"
    if (device / "wireless").exists() or (device / "phy80211").exists():
        return "wifi"
    if _driver_of(device) == "thunderbolt-net" or name.startswith("thunderbolt"):
        return "thunderbolt"
    if name.startswith(_VIRTUAL) or _read_type(device) != _ARP_ETHERNET:
        return "other"
    return "ethernet"


def classify_mac(name: str, ports: Mapping[str, str]) -> LinkKind:
    """Tell by the name of the hardware port (`Thunderbolt 1`, `Wi-Fi`, `Thunderbolt Bridge`)."""
    port = ports.get(name, "").lower()
    if name.startswith("lo"):
        return "loopback"
    if "thunderbolt" in port and "ethernet" not in port:
        return "thunderbolt"
    if port == "wi-fi" or "airport" in port:
        return "wifi"
    return "ethernet" if "ethernet" in port or "lan" in port else "other"


def _driver_of(device: Path) -> str:
    try:
        return (device / "device" / "driver").resolve(strict=True).name
    except OSError:
        return ""


def _read_type(device: Path) -> int:
    try:
        return int((device / "type").read_text())
    except (OSError, ValueError):
        return 0
