"""What macOS's programs say of Thunderbolt, RDMA and the bridge. Pure: their output in, our structs out.

`system_profiler SPThunderboltDataType -json`, `networksetup -listallhardwareports`, `ibv_devices`,
`rdma_ctl status` and `ifconfig -v bridge0`.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final, Literal

import msgspec

from exo.streams.links import Thunderbolt, ThunderboltPort

_PORT: Final = re.compile(r"^Hardware Port: (?P<port>.+)\nDevice: (?P<device>\S+)", re.MULTILINE)
_MEMBER: Final = re.compile(r"^\s*member: (\S+)", re.MULTILINE)
_DEVICE: Final = re.compile(r"^\s*(rdma_\S+)\s+[0-9a-f]{16}\s*$", re.MULTILINE)
_RECEPTACLE: Final = re.compile(r"^receptacle_\d+_tag$")

RdmaStatus = Literal["unknown", "unsupported", "disabled", "enabled"]


class _Receptacle(msgspec.Struct, frozen=True):
    receptacle_id_key: str = ""
    current_speed_key: str = ""


class _Item(msgspec.Struct, frozen=True):
    domain_uuid_key: str = ""


class _Bus(msgspec.Struct, frozen=True):
    domain_uuid_key: str = ""
    items: tuple[_Item, ...] = msgspec.field(name="_items", default=())


def parse_hardware_ports(text: str) -> dict[str, str]:
    """Give the name of the hardware port of each device: `{"en2": "Thunderbolt 1"}`."""
    return {match["device"]: match["port"].strip() for match in _PORT.finditer(text)}


def parse_ibv_devices(text: str) -> tuple[str, ...]:
    """Give the RDMA devices; each is named after its interface, `rdma_en2`."""
    return tuple(_DEVICE.findall(text))


def parse_rdma_status(text: str | None) -> RdmaStatus:
    """Read the answer of `rdma_ctl status`; None is a Mac that has no such program."""
    if text is None:
        return "unsupported"
    words = set(re.findall(r"[a-z]+", text.lower()))
    if "disabled" in words or "not" in words:
        return "disabled"
    return "enabled" if "enabled" in words else "unknown"


def parse_bridge(text: str) -> tuple[str, ...]:
    """Give the members of a bridge that is up, from `ifconfig bridge0`."""
    is_up = re.search(r"^bridge\d+: flags=\w+<[^>]*\bUP\b", text, re.MULTILINE)
    is_active = "status: inactive" not in text
    return tuple(_MEMBER.findall(text)) if is_up and is_active else ()


def parse_thunderbolt(
    profile: bytes, *, hardware_ports: Mapping[str, str], rdma_devices: Collection[str]
) -> tuple[ThunderboltPort, ...]:
    """Give the ports in order of their receptacles; none when the profile cannot be read.

    A peer is the first thing behind the port that names a domain: another Mac. Behind a dock none is seen.
    """
    try:
        buses = msgspec.json.decode(profile, type=dict[str, list[dict[str, msgspec.Raw]]])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    interfaces = {port.removeprefix("Thunderbolt "): device for device, port in hardware_ports.items()}
    ports = [
        port
        for raw in buses.get("SPThunderboltDataType", [])
        if (port := _read_bus(raw, interfaces, rdma_devices)) is not None
    ]
    return tuple(sorted(ports, key=lambda port: (len(port.receptacle), port.receptacle)))


def _read_bus(
    raw: Mapping[str, msgspec.Raw], interfaces: Mapping[str, str], rdma_devices: Collection[str]
) -> ThunderboltPort | None:
    try:
        bus = msgspec.convert({key: msgspec.json.decode(value) for key, value in raw.items()}, _Bus)
        tags = [msgspec.json.decode(value, type=_Receptacle) for key, value in raw.items() if _RECEPTACLE.match(key)]
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None
    if not bus.domain_uuid_key or not tags:
        return None
    receptacle = tags[0].receptacle_id_key
    interface = interfaces.get(receptacle, "")
    rdma = f"rdma_{interface}"
    return ThunderboltPort(
        receptacle=receptacle,
        domain=bus.domain_uuid_key,
        peer=next((item.domain_uuid_key for item in bus.items if item.domain_uuid_key), ""),
        interface=interface,
        speed=tags[0].current_speed_key,
        rdma=rdma if rdma in rdma_devices else "",
    )


def combine(ports: tuple[ThunderboltPort, ...], *, bridge_members: Collection[str], rdma: RdmaStatus) -> Thunderbolt:
    """Give what others must know; a bridge counts when it joins two or more Thunderbolt ports."""
    joined = [port for port in ports if port.interface in bridge_members]
    return Thunderbolt(ports=ports, bridge=len(joined) > 1, rdma=rdma)
