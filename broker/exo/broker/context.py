"""Where the broker is, for other processes: our own `exo nats` and the stock `nats` CLI.

Written by `cluster.py` whenever the node's bus moves, and by `exo nats context`. It gives the role
reader, which can change nothing. Holds the paths of keys, never a key.
"""

import json
from pathlib import Path

import msgspec

from exo.broker.certificates import TlsFiles
from exo.broker.credentials import Credentials
from exo.broker.permissions import READER, inbox_of
from exo.broker.policy import ConnectionSettings
from exo.broker.private_files import write_private


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The broker that this machine's node is connected to, and how to read it.

    `monitor_url` and `pid` (of nats-server) are set when it runs here. The seed is of the role reader.
    `certificate` and `key` are set when the broker speaks TLS.
    """

    url: str
    seed_file: str
    monitor_url: str = ""
    pid: int = 0
    certificate: str = ""
    key: str = ""

    def to_settings(self, name: str) -> ConnectionSettings:
        """Give what connects a reader."""
        return ConnectionSettings(
            url=self.url,
            name=name,
            seed=Path(self.seed_file).read_text().strip(),
            inbox=inbox_of(READER),
            tls=TlsFiles(Path(self.certificate), Path(self.key)) if self.certificate else None,
        )


def address_file(directory: Path) -> Path:
    """Where `write_address` puts it."""
    return directory / "address.json"


def write_address(directory: Path, address: Address) -> None:
    """Tell where the broker of this directory is."""
    write_private(address_file(directory), msgspec.json.encode(address))


def make_address(
    url: str,
    *,
    credentials: Credentials,
    directory: Path,
    tls: TlsFiles | None = None,
    monitor_url: str = "",
    pid: int = 0,
) -> Address:
    """Describe a broker, and put the key of the role reader beside the address."""
    seed_file = directory / "reader.nk"
    write_private(seed_file, credentials.seed(READER).encode() + b"\n")
    return Address(
        url=url,
        seed_file=str(seed_file),
        monitor_url=monitor_url,
        pid=pid,
        certificate=str(tls.certificate) if tls else "",
        key=str(tls.key) if tls else "",
    )


def read_address(directory: Path) -> Address | None:
    """Give the broker of this directory, None when there is none."""
    try:
        return msgspec.json.decode(address_file(directory).read_bytes(), type=Address)
    except FileNotFoundError:
        return None


def remove_address(directory: Path) -> None:
    """Tell that it is gone."""
    address_file(directory).unlink(missing_ok=True)


def write_cli_context(file: Path, address: Address) -> None:
    """Write a context of the stock CLI, usually `~/.config/nats/context/exo.json`: `nats --context exo stream ls`."""
    context: dict[str, object] = {
        "description": "exo on this machine, read-only",
        "url": address.url,
        "nkey": address.seed_file,
        "inbox_prefix": inbox_of(READER),
    }
    if address.certificate:
        context |= {
            "ca": address.certificate,
            "cert": address.certificate,
            "key": address.key,
            "tls_first": True,
        }
    write_private(file, json.dumps(context, indent=2).encode() + b"\n")
