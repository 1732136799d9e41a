"""The configuration file of nats-server, as a pure function of settings.

Written by `process.py` at each start and by `server.py` when a node is admitted. The monitoring port is
always on loopback: it shows every client and subject to whoever asks.
"""

import json
import re
from pathlib import Path
from typing import Final

import msgspec

from exo.broker.certificates import ServerTls
from exo.broker.permissions import Permissions
from exo.streams.layout import BLOBS, BUCKETS, MAX_PAYLOAD, MIB, STREAMS, Storage

LOOPBACK: Final = "127.0.0.1"
MARGIN: Final = 64 * MIB
"""Room beside exo's own streams, for what a person makes with the `nats` CLI while looking around."""

MAX_PENDING: Final = 64 * MIB
LAME_DUCK_GRACE: Final = 1
LAME_DUCK_DURATION: Final = 30
"""The least that nats-server takes (seconds); it leaves at once when no client is left."""


class User(msgspec.Struct, frozen=True):
    """Somebody who may connect. `permissions` None allows everything."""

    public_key: str
    permissions: Permissions | None = None


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between servers. `port` 0 lets the system pick; empty `users` lets all in.

    With `tls` clients and server prove themselves by certificates. `host` beyond loopback needs both.
    """

    directory: Path
    name: str
    host: str = LOOPBACK
    port: int = 0
    users: tuple[User, ...] = ()
    tls: ServerTls | None = None

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
            f'listen: "{settings.host}:{settings.port or -1}"',
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
            *_write_tls(settings.tls),
            *_write_users(settings.users),
            "",
        ]
    )


def clean_name(name: str) -> str:
    """Give a name that nats-server takes: no spaces, and nothing that its parser could stumble over."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "exo"


def _write_tls(files: ServerTls | None) -> list[str]:
    if files is None:
        return []
    return [
        "tls {",
        f"  cert_file: {_quote(files.certificate)}",
        f"  key_file: {_quote(files.key)}",
        f"  ca_file: {_quote(files.authority)}",
        "  verify: true",
        # A port scanner learns nothing, not even that this is a nats-server.
        "  handshake_first: true",
        "  timeout: 10",
        "}",
    ]


def _write_users(users: tuple[User, ...]) -> list[str]:
    if not users:
        return []
    # A loaded machine may need more than the default second to answer the nonce.
    return ["authorization {", "  timeout: 10", "  users: [", *map(_write_user, users), "  ]", "}"]


def _write_user(user: User) -> str:
    granted = user.permissions
    if granted is None:
        return f"    {{ nkey: {user.public_key} }}"
    rules = {"publish": {"allow": granted.publish}, "subscribe": {"allow": granted.subscribe}}
    return f"    {{ nkey: {user.public_key}, permissions: {json.dumps(rules)} }}"


def _quote(text: str | Path) -> str:
    """Quote as nats-server's parser reads it; JSON's escapes are among its own."""
    return json.dumps(str(text), ensure_ascii=False)
