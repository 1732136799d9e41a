"""What the watches conclude from what they see."""

import pytest

from exo.broker.hello import Hello, Position
from exo.broker.peering import Peer
from exo.broker.permissions import HUB, MASTER, READER, permit
from exo.broker.pulse import PERIOD, SLEPT, has_slept
from exo.broker.reaching import list_targets
from exo.broker.watch import ENOUGH, FIRST_PAUSE, LITTLE, NO_ROOM, Health, judge_store, should_restart
from exo.streams.ids import BootId, NodeId


@pytest.mark.parametrize(
    ("health", "code"),
    [
        (Health("", ENOUGH), None),
        (Health("", LITTLE - 1), "store_disk_full"),
        (Health("write error", LITTLE - 1), "store_disk_full"),
        (Health("write error", LITTLE), "store_unhealthy"),
        (Health(f"write error: {NO_ROOM} on device", ENOUGH - 1), "store_disk_full"),
        (Health(f"write error: {NO_ROOM} on device", ENOUGH), "store_unhealthy"),
    ],
)
def test_a_store_in_trouble_is_named(health: Health, code: str | None) -> None:
    finding = judge_store(health)
    assert (finding.code if finding else None) == code


def test_a_server_that_refuses_to_write_is_started_again_once_there_is_room() -> None:
    def decide(health: Health, *, since_restart: float = FIRST_PAUSE) -> bool:
        return should_restart(health, since_restart=since_restart, pause=FIRST_PAUSE)

    assert decide(Health("write error", ENOUGH))
    assert not decide(Health("write error", ENOUGH - 1))
    assert not decide(Health("write error", ENOUGH), since_restart=FIRST_PAUSE - 1)
    assert not decide(Health("", ENOUGH))


def test_sleep_shows_in_a_late_beat_or_in_clocks_that_part() -> None:
    assert not has_slept(PERIOD, PERIOD)
    assert not has_slept(PERIOD + 1, PERIOD + 1)
    assert has_slept(PERIOD + SLEPT + 1, PERIOD + SLEPT + 1)
    # A laptop's lid: the monotonic clock stood still.
    assert has_slept(PERIOD, 600)
    assert has_slept(PERIOD, -3600)


def make_peer(address: str, *advertised: str) -> Peer:
    hello = Hello(
        node=NodeId("a"),
        boot=BootId("b"),
        name="a",
        version="1",
        started_at=0,
        role="hub",
        position=Position(),
        hub_addresses=advertised,
    )
    return Peer(hello=hello, address=address, heard_at=0, connected=True)


def test_the_hub_is_tried_first_where_its_cluster_port_was_reached() -> None:
    peer = make_peer("10.0.0.7:52414", "192.168.1.7:4222", "10.0.0.7:4222", "[fd00::7]:4222")
    assert list_targets(peer) == ["10.0.0.7:4222", "192.168.1.7:4222", "[fd00::7]:4222"]
    assert list_targets(make_peer("[fe80::1]:52414", "x:4222"))[0] == "[fe80::1]:4222"
    assert list_targets(make_peer("10.0.0.7:52414")) == []


def test_only_the_hub_may_do_everything() -> None:
    assert permit(HUB) is None
    for role in (MASTER, READER, "node-n1"):
        permissions = permit(role)
        assert permissions is not None
        assert not any(subject in {">", "$JS.API.>", "exo.>"} for subject in permissions.publish)
        assert not any("DELETE.EXO" in subject and "STREAM" in subject for subject in permissions.publish)


def test_no_two_nodes_may_publish_the_same_fact() -> None:
    one, two = permit("node-n1"), permit("node-n2")
    assert one is not None
    assert two is not None
    shared = set(one.publish) & set(two.publish)
    assert not any(subject.startswith(("exo.events", "exo.tokens", "exo.telemetry", "exo.logs")) for subject in shared)
