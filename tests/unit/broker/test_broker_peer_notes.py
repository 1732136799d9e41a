from pathlib import Path

import structlog

from exo.broker.cluster_frames import PROTOCOL, Greeting
from exo.broker.greeting import RefusedError
from exo.broker.peer_notes import LONGEST_TEXT, MOST_NOTES, Notes
from exo.broker.peering import Stranger
from exo.broker.remembered import read_remembered, write_remembered
from exo.streams.ids import BootId, NodeId


def make_greeting(number: int = 0, *, name: str = "stranger") -> Greeting:
    return Greeting(
        protocol=PROTOCOL,
        cluster="work",
        node=NodeId(f"n{number}"),
        boot=BootId("b"),
        name=name,
        version="1",
        nonce="0",
    )


def make_refusal(number: int = 0, *, name: str = "stranger") -> RefusedError:
    return RefusedError("other_cluster", "why", by_us=True, greeting=make_greeting(number, name=name))


def test_the_same_refusal_is_one_note_and_one_log_line() -> None:
    notes = Notes()
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            notes.refuse(make_refusal(), address="10.0.0.1:1")
    assert len(logs) == 1
    (note,) = notes.refusals.values()
    assert (note.times, note.name, note.cluster) == (5, "stranger", "work")


def test_strangers_cannot_fill_our_memory() -> None:
    notes = Notes()
    for number in range(3 * MOST_NOTES):
        notes.refuse(make_refusal(number, name="x" * 9999), address="10.0.0.1:1")
        notes.meet_stranger(
            Stranger(node=NodeId(f"n{number}"), name="s", cluster="c", version="1", address="", seen_at=1)
        )
        notes.reject_address(f"bad {number} " + "x" * 9999, "why", source="member")
        notes.skip_frame(f"kind {number}", make_greeting(number))
    sizes = [len(kept) for kept in (notes.refusals, notes.strangers, notes.bad_addresses, notes._skipped)]
    assert sizes == [MOST_NOTES] * 4
    assert all(len(note.name) <= LONGEST_TEXT + 1 for note in notes.refusals.values())
    assert notes.counters["unknown_frames"] == 3 * MOST_NOTES


def test_a_flood_is_counted_whole_and_logged_once() -> None:
    notes = Notes()
    with structlog.testing.capture_logs() as logs:
        for _ in range(1000):
            notes.count("garbage", address="10.0.0.1", reason="x" * 9999)
    assert notes.counters == {"garbage": 1000}
    assert len(logs) == 1
    assert len(logs[0]["reason"]) <= LONGEST_TEXT + 1


def test_a_second_connection_of_friends_is_no_note() -> None:
    notes = Notes()
    notes.refuse(RefusedError("connected", "", by_us=True, greeting=make_greeting()), address="10.0.0.1:1")
    assert notes.refusals == {}


def test_addresses_are_remembered(tmp_path: Path) -> None:
    file = tmp_path / "new" / "peers.json"
    assert read_remembered(file) == []
    write_remembered(file, ["10.0.0.1:1", "10.0.0.2:1"])
    assert read_remembered(file) == ["10.0.0.1:1", "10.0.0.2:1"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_broken_file_only_costs_its_addresses(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    file.write_text('{"not": "a list"}')
    with structlog.testing.capture_logs() as logs:
        assert read_remembered(file) == []
    assert [line["event"] for line in logs] == ["cannot read the addresses of earlier peers"]


def test_a_disk_that_takes_nothing_only_costs_a_log_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with structlog.testing.capture_logs() as logs:
        write_remembered(tmp_path / "file" / "peers.json", ["10.0.0.1:1"])
    assert [line["event"] for line in logs] == ["cannot remember the addresses of peers"]
