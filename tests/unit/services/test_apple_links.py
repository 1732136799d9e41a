"""Thunderbolt, RDMA and the bridge of a Mac, from recorded answers of macOS's programs."""

from typing import Any

import pytest
from msgspec.structs import replace

from exo.broker.memory import MemoryBus
from exo.services.clock import FakeClock
from exo.services.journal import Journal
from exo.services.links.apple import (
    parse_bridge,
    parse_hardware_ports,
    parse_ibv_devices,
    parse_rdma_status,
    parse_thunderbolt,
)
from exo.services.links.interfaces import classify_mac
from exo.services.links.local_findings import find_port_findings
from exo.services.links.thunderbolt import ThunderboltWatch, read_thunderbolt
from exo.services.telemetry.board import FindingBoard
from exo.streams.links import Thunderbolt, ThunderboltPort
from support.recordings import BRIDGE, HARDWARE_PORTS, IBV_DEVICES, THUNDERBOLT_PROFILE, answer_from
from support.services import BOOT, NODE

ANSWERS = {
    "networksetup": HARDWARE_PORTS,
    "system_profiler": THUNDERBOLT_PROFILE,
    "ibv_devices": IBV_DEVICES,
    "ifconfig": BRIDGE,
    "rdma_ctl status": "enabled\n",
}
FIRST = ThunderboltPort(
    receptacle="1",
    domain="11111111-0000-0000-0000-000000000001",
    interface="en2",
    speed="Up to 80 Gb/s",
    rdma="rdma_en2",
)
SECOND = ThunderboltPort(
    receptacle="2",
    domain="11111111-0000-0000-0000-000000000002",
    peer="22222222-0000-0000-0000-000000000001",
    interface="en3",
    speed="80 Gb/s",
    rdma="rdma_en3",
)


def test_a_mac_tells_its_ports_its_bridge_and_rdma() -> None:
    seen = read_thunderbolt(answer_from(ANSWERS), has_rdma_ctl=True)
    assert seen == Thunderbolt(ports=(FIRST, SECOND), bridge=True, rdma="enabled")


def test_a_mac_of_before_rdma_tells_its_ports_all_the_same() -> None:
    answers = {**ANSWERS, "ibv_devices": "", "ifconfig": ""}
    seen = read_thunderbolt(answer_from(answers), has_rdma_ctl=False)
    assert (seen.bridge, seen.rdma) == (False, "unsupported")
    assert [port.rdma for port in seen.ports] == ["", ""]


def test_programs_that_fail_leave_nothing_known() -> None:
    assert read_thunderbolt(answer_from({}), has_rdma_ctl=True) == Thunderbolt()


@pytest.mark.parametrize(
    "profile",
    [
        b"",
        b"[]",
        b'{"SPThunderboltDataType": [{"_name": "bus"}]}',
        b'{"SPThunderboltDataType": [{"_items": 3}]}',
        b"\xff",
    ],
)
def test_a_profile_that_cannot_be_read_gives_no_ports(profile: bytes) -> None:
    assert parse_thunderbolt(profile, hardware_ports={}, rdma_devices=()) == ()


def test_a_mac_behind_a_dock_is_no_peer() -> None:
    profile = (
        b'{"SPThunderboltDataType": [{"domain_uuid_key": "a", "receptacle_1_tag": {"receptacle_id_key": "1"},'
        b' "_items": [{"_name": "Dock", "_items": [{"_name": "Mac", "domain_uuid_key": "b"}]}]}]}'
    )
    (port,) = parse_thunderbolt(profile, hardware_ports={}, rdma_devices=())
    assert (port.domain, port.peer) == ("a", "")


def test_hardware_ports_name_devices_and_their_kinds() -> None:
    ports = parse_hardware_ports(HARDWARE_PORTS)
    assert ports["en2"] == "Thunderbolt 1"
    kinds = {name: classify_mac(name, ports) for name in ("lo0", "en0", "en1", "en2", "bridge0", "en7", "utun3")}
    assert kinds == {
        "lo0": "loopback",
        "en0": "ethernet",
        "en1": "wifi",
        "en2": "thunderbolt",
        "bridge0": "thunderbolt",
        "en7": "ethernet",
        "utun3": "other",
    }


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("enabled\n", "enabled"),
        ("RDMA is enabled\n", "enabled"),
        ("disabled\n", "disabled"),
        ("RDMA is not enabled\n", "disabled"),
        ("", "unknown"),
        (None, "unsupported"),
    ],
)
def test_the_status_of_rdma_is_read(answer: str | None, status: str) -> None:
    assert parse_rdma_status(answer) == status


def test_rdma_devices_are_listed() -> None:
    assert parse_ibv_devices(IBV_DEVICES) == ("rdma_en2", "rdma_en3")


@pytest.mark.parametrize(
    ("text", "members"),
    [
        (BRIDGE, ("en2", "en3")),
        (BRIDGE.replace("status: active", "status: inactive"), ()),
        (BRIDGE.replace("<UP,", "<"), ()),
        ("", ()),
    ],
)
def test_only_a_bridge_that_is_up_has_members(text: str, members: tuple[str, ...]) -> None:
    assert parse_bridge(text) == members


# Findings of one Mac.


def codes(thunderbolt: Thunderbolt) -> list[str]:
    found = list(find_port_findings(thunderbolt))
    assert all(finding.message and finding.remedy for finding in found)
    return [finding.code for finding in found]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"bridge": True}, ["rdma_behind_bridge"]),
        ({"bridge": True, "rdma": "disabled"}, []),
        ({"ports": (replace(FIRST, peer="other"),)}, ["rdma_port_beside_ethernet"]),
        ({"ports": (replace(SECOND, rdma=""),)}, ["rdma_device_missing"]),
        ({"ports": ()}, []),
    ],
)
def test_ports_in_use_are_looked_at(changes: dict[str, Any], expected: list[str]) -> None:
    assert codes(replace(Thunderbolt(ports=(FIRST, SECOND), rdma="enabled"), **changes)) == expected


# Telling the others.


def test_only_what_changes_is_written() -> None:
    journal = Journal(MemoryBus(), clock=FakeClock(), node=NODE, boot=BOOT)
    known: list[Thunderbolt] = []
    watch = ThunderboltWatch(
        node=NODE, journal=journal, known=lambda: known[0] if known else None, board=FindingBoard(), clock=FakeClock()
    )
    seen = Thunderbolt(ports=(FIRST,), rdma="disabled")
    watch.take(seen)
    watch.take(seen)
    assert journal._queue.qsize() == 1
    known.append(Thunderbolt(ports=(SECOND,)))
    watch.take(known[0])
    assert journal._queue.qsize() == 1
    watch.take(replace(seen, rdma="enabled"))
    assert journal._queue.qsize() == 2
