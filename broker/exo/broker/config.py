"""The configuration file of nats-server, as a pure function of settings.

Written by `server.py`. Everything is on loopback: an address beyond it needs TLS and roles first.
"""

import json
import re
from pathlib import Path
from typing import Final

import msgspec

from exo.streams.layout import BLOBS, BUCKETS, MAX_PAYLOAD, MIB, STREAMS, Storage

LOOPBACK: Final = "127.0.0.1"
MARGIN: Final = 64 * MIB
"""Room beside exo's own streams, for what a person makes with the `nats` CLI while looking around."""

MAX_PENDING: Final = 64 * MIB
LAME_DUCK_GRACE: Final = 1
LAME_DUCK_DURATION: Final = 30
"""The least that nats-server takes (seconds); it leaves at once when no client is left."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between servers. `port` 0 lets the system pick; `users` are public nkeys, empty lets all in."""

    directory: Path
    name: str
    port: int = 0
    users: tuple[str, ...] = ()

    @property
    def store(self) -> Path:
        return self.directory / "store"

    @property
    def config_file(self) -> Path:
        return self.directory / "nats-server.conf"

    @property
    def log_file(self) -> Path:
        return self.directory / "nats-server.log"

    @property
    def ports_directory(self) -> Path:
        return self.directory / "ports"


def sum_limits(storage: Storage) -> int:
    """Give the bytes that all of exo's streams and buckets on this storage may hold together."""
    return sum(spec.max_bytes for spec in (*STREAMS, *BUCKETS, BLOBS) if spec.storage is storage)


def choose_scale(room: int) -> float:
    """Give the part of the layout's file limits that fits a disk with so many bytes to spare.

    In steps of a twentieth, so that a few files more or less do not change every stream.
    """
    wanted = sum_limits(Storage.FILE)
    share = room * 3 // 4
    return 1.0 if share >= wanted else max(1, share * 20 // wanted) / 20


def write_config(settings: ServerSettings) -> str:
    """Give the text of the configuration file.

    The server's limits are the sum of the streams' (fitted to the machine by `provision.py`) plus
    `MARGIN`: a limit below what a stream reserved once would hide that stream after a restart.
    """
    return "\n".join(
        [
            "# Written by exo at each start; changes are lost.",
            f"server_name: {_quote(clean_name(settings.name))}",
            f'listen: "{LOOPBACK}:{settings.port or -1}"',
            f'http: "{LOOPBACK}:-1"',
            f"ports_file_dir: {_quote(settings.ports_directory)}",
            f"log_file: {_quote(settings.log_file)}",
            f"logfile_size_limit: {4 * MIB}",
            "logfile_max_num: 2",
            f"max_payload: {MAX_PAYLOAD}",
            f"max_pending: {MAX_PENDING}",
            'ping_interval: "2s"',
            "ping_max: 2",
            'write_deadline: "5s"',
            f'lame_duck_grace_period: "{LAME_DUCK_GRACE}s"',
            f'lame_duck_duration: "{LAME_DUCK_DURATION}s"',
            "jetstream {",
            f"  store_dir: {_quote(settings.store)}",
            f"  max_memory_store: {sum_limits(Storage.MEMORY) + MARGIN}",
            f"  max_file_store: {sum_limits(Storage.FILE) + MARGIN}",
            '  sync_interval: "1s"',
            "}",
            *_write_users(settings.users),
            "",
        ]
    )


def clean_name(name: str) -> str:
    """Give a name that nats-server takes: no spaces, and nothing that its parser could stumble over."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "exo"


def _write_users(users: tuple[str, ...]) -> list[str]:
    if not users:
        return []
    # A loaded machine may need more than the default second to answer the nonce.
    listed = ", ".join(f"{{ nkey: {user} }}" for user in users)
    return ["authorization {", "  timeout: 10", f"  users: [ {listed} ]", "}"]


def _quote(text: str | Path) -> str:
    """Quote as nats-server's parser reads it; JSON's escapes are among its own."""
    return json.dumps(str(text), ensure_ascii=False)
