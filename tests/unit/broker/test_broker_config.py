"""The server's configuration: a pure function of settings."""

from pathlib import Path

import pytest

from exo.broker.certificates import ServerTls
from exo.broker.config import MARGIN, ServerSettings, User, choose_scale, clean_name, sum_limits, write_config
from exo.broker.permissions import Permissions
from exo.broker.policy import PING_INTERVAL, RECONNECT_WAIT, ConnectionSettings, inbox_prefix, list_options
from exo.streams.layout import GIB, Storage

DIRECTORY = Path("/data with space/nats")


def test_everything_is_on_loopback() -> None:
    text = write_config(ServerSettings(directory=DIRECTORY, name="n"))
    assert 'listen: "127.0.0.1:-1"' in text
    assert 'http: "127.0.0.1:-1"' in text
    assert "0.0.0.0" not in text


def test_a_fixed_port_is_used() -> None:
    assert 'listen: "127.0.0.1:4222"' in write_config(ServerSettings(directory=DIRECTORY, name="n", port=4222))


def test_paths_are_quoted() -> None:
    assert 'store_dir: "/data with space/nats/store"' in write_config(ServerSettings(directory=DIRECTORY, name="n"))


def test_without_users_nobody_is_asked_who_they_are() -> None:
    assert "authorization" not in write_config(ServerSettings(directory=DIRECTORY, name="n"))
    text = write_config(ServerSettings(directory=DIRECTORY, name="n", users=(User("UABC"),)))
    assert "    { nkey: UABC }\n" in text


def test_the_servers_limits_hold_all_streams() -> None:
    text = write_config(ServerSettings(directory=DIRECTORY, name="n"))
    assert f"max_memory_store: {sum_limits(Storage.MEMORY) + MARGIN}" in text
    assert f"max_file_store: {sum_limits(Storage.FILE) + MARGIN}" in text


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [("mac-studio.local", "mac-studio.local"), ("Zoë's Mac", "Zo-s-Mac"), ('a"b\n', "a-b-"), ("", "exo")],
)
def test_names_become_what_the_server_takes(name: str, cleaned: str) -> None:
    assert clean_name(name) == cleaned


def test_a_roomy_disk_takes_the_whole_layout() -> None:
    assert choose_scale(1000 * GIB) == 1.0


def test_a_small_disk_takes_a_part_that_fits() -> None:
    for room in (GIB, 2 * GIB, 5 * GIB):
        assert choose_scale(room) * sum_limits(Storage.FILE) <= room
    assert choose_scale(0) > 0


def test_the_connection_policy_fits_a_lan() -> None:
    """nats-py's defaults notice a dead server after four minutes and give up (ADR 0012, defect 6)."""
    options = list_options(ConnectionSettings(url="nats://127.0.0.1:4222", name="n", seed="S"))
    assert options["ping_interval"] == PING_INTERVAL <= 2
    assert options["max_outstanding_pings"] == 2
    assert options["reconnect_time_wait"] == RECONNECT_WAIT <= 0.2
    assert options["max_reconnect_attempts"] == -1
    assert options["pending_size"] == 64 * 1024 * 1024
    assert options["nkeys_seed_str"] == "S"


def test_each_client_has_an_inbox_of_its_own() -> None:
    assert inbox_prefix(ConnectionSettings(url="", name="node 1.local")) == "_INBOX.node-1-local"


def test_a_role_is_written_with_all_it_may_do() -> None:
    granted = Permissions(publish=("exo.a.>",), subscribe=("exo.b",))
    text = write_config(ServerSettings(directory=DIRECTORY, name="n", users=(User("UABC", granted), User("UDEF"))))
    assert '{ nkey: UABC, permissions: {"publish": {"allow": ["exo.a.>"]}' in text
    # It would make the server remember every delivery.
    assert "allow_responses" not in text
    assert "{ nkey: UDEF }" in text


def test_beyond_loopback_both_sides_prove_themselves_first() -> None:
    files = ServerTls(Path("/k/server.crt"), Path("/k/server.key"), Path("/k/cluster.crt"))
    text = write_config(ServerSettings(directory=DIRECTORY, name="n", host="0.0.0.0", tls=files))
    assert 'listen: "0.0.0.0:-1"' in text
    # The monitoring shows every subject: it stays at home.
    assert 'http: "127.0.0.1:-1"' in text
    assert 'cert_file: "/k/server.crt"' in text
    assert 'ca_file: "/k/cluster.crt"' in text
    assert "verify: true" in text
    assert "handshake_first: true" in text
