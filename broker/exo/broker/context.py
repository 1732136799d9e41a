"""Where the broker is, for other processes: our own `exo nats` and the stock `nats` CLI.

Written by `hub.py` at each start of the server and by `exo nats context`. Holds the path of the
key, never the key.
"""

import json
import os
from pathlib import Path

import msgspec


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A running broker of this machine."""

    url: str
    monitor_url: str
    seed_file: str
    pid: int


def address_file(directory: Path) -> Path:
    """Where `write_address` puts it."""
    return directory / "address.json"


def write_address(directory: Path, address: Address) -> None:
    """Tell where the broker of this directory is."""
    _replace(address_file(directory), msgspec.json.encode(address))


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
    context = {"description": "exo on this machine", "url": address.url, "nkey": address.seed_file}
    file.parent.mkdir(parents=True, exist_ok=True)
    _replace(file, json.dumps(context, indent=2).encode() + b"\n")


def _replace(file: Path, content: bytes) -> None:
    # Readers see the old text or the new one, never half of it.
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(0o600)
    draft.replace(file)
