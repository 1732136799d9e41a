"""A node's id stays with its machine: restarts keep it, a copied data directory does not."""

import re
from pathlib import Path

import pytest

from exo.ops.errors import CommandError
from exo.ops.identity import load_identity
from exo.ops.machine import is_container, parse_platform_uuid, read_fingerprint
from exo.ops.paths import Paths, find_paths
from exo.streams.ids import SUBJECT_TOKEN

IOREG = """
+-o J314sAP  <class IOPlatformExpertDevice, id 0x100000227, registered, matched, active>
    {
      "IOPlatformSerialNumber" = "C02XXXXXXXXX"
      "IOPlatformUUID" = "6E2A1F4C-9C5B-5B0F-8A43-0123456789AB"
    }
"""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = find_paths(tmp_path / "box")
    paths.prepare()
    return paths


def test_the_id_is_drawn_once(paths: Paths) -> None:
    first = load_identity(paths, fingerprint="here")
    assert SUBJECT_TOKEN.match(first.node)
    assert load_identity(paths, fingerprint="here") == first
    assert first.notice == ""
    assert paths.node_id_file.stat().st_mode & 0o777 == 0o600


def test_what_is_no_id_is_refused(paths: Paths) -> None:
    paths.node_id_file.write_text("Not An Id")
    with pytest.raises(CommandError, match="delete it"):
        load_identity(paths, fingerprint="here")


def test_a_copied_data_directory_gets_an_id_of_its_own(paths: Paths) -> None:
    original = load_identity(paths, fingerprint="here")
    model, store = paths.models / "org--name" / "config.json", paths.store / "sessions" / "s1"
    known = paths.standby / "name.snapshot"
    for file in (model, store, known):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    copy = load_identity(paths, fingerprint="there")
    assert copy.node != original.node
    assert original.node in copy.notice
    assert copy.node in copy.notice
    assert model.exists()
    assert not paths.store.exists()
    assert not known.exists()
    again = load_identity(paths, fingerprint="there")
    assert (again.node, again.notice) == (copy.node, "")


def test_an_id_without_a_fingerprint_is_adopted(paths: Paths) -> None:
    paths.node_id_file.write_text("abc\n")
    assert load_identity(paths, fingerprint="here").node == "abc"
    assert load_identity(paths, fingerprint="there").node != "abc"


def test_a_machine_that_cannot_be_told_keeps_its_id(paths: Paths) -> None:
    first = load_identity(paths, fingerprint="here")
    assert load_identity(paths, fingerprint="").node == first.node
    assert load_identity(paths, fingerprint="here") == first


def test_a_start_that_died_while_it_changed_the_id_is_repeated(paths: Paths) -> None:
    original = load_identity(paths, fingerprint="here")
    copy = load_identity(paths, fingerprint="there")
    # As if the fingerprint had not been written any more.
    paths.machine_file.write_text("here\n")
    assert load_identity(paths, fingerprint="there").node not in {original.node, copy.node}


def make_machine(root: Path, machine_id: str = "", *, card: str = "") -> Path:
    (root / "etc").mkdir(parents=True)
    (root / "etc" / "machine-id").write_text(machine_id + "\n")
    if card:
        (root / "sys/class/net/eth0/device").mkdir(parents=True)
        (root / "sys/class/net/eth0/address").write_text(card + "\n")
    return root


@pytest.fixture
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")


@pytest.mark.usefixtures("linux")
def test_a_fingerprint_differs_between_machines_and_hides_what_it_is_made_of(tmp_path: Path) -> None:
    one = read_fingerprint(make_machine(tmp_path / "a", "0123456789abcdef" * 2), {})
    same = read_fingerprint(make_machine(tmp_path / "b", "0123456789abcdef" * 2), {})
    other = read_fingerprint(make_machine(tmp_path / "c", "fedcba9876543210" * 2), {})
    assert one == same != other
    assert re.fullmatch("[0-9a-f]{32}", one)
    assert "0123456789abcdef" not in one


@pytest.mark.usefixtures("linux")
@pytest.mark.parametrize("machine_id", ["", "uninitialized"])
def test_without_a_machine_id_the_cards_tell(tmp_path: Path, machine_id: str) -> None:
    one = read_fingerprint(make_machine(tmp_path / "a", machine_id, card="02:00:00:00:00:01"), {})
    other = read_fingerprint(make_machine(tmp_path / "b", machine_id, card="02:00:00:00:00:02"), {})
    assert one != other
    assert read_fingerprint(make_machine(tmp_path / "c", machine_id), {}) == ""


@pytest.mark.usefixtures("linux")
def test_containers_of_one_image_are_told_apart_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_machine(tmp_path, "0123456789abcdef" * 2)
    (root / ".dockerenv").touch()
    assert is_container(root, {})
    monkeypatch.setattr("socket.gethostname", lambda: "a1b2")
    one = read_fingerprint(root, {})
    monkeypatch.setattr("socket.gethostname", lambda: "c3d4")
    assert read_fingerprint(root, {}) != one


def test_the_uuid_of_a_mac_is_found() -> None:
    assert parse_platform_uuid(IOREG) == "6e2a1f4c-9c5b-5b0f-8a43-0123456789ab"
    assert parse_platform_uuid("nothing of the kind") == ""


def test_this_machine_has_the_same_fingerprint_twice() -> None:
    assert read_fingerprint() == read_fingerprint()
