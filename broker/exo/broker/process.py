"""One run of nats-server under its shim: started, awaited, ordered to stop. `server.py` decides when."""

import asyncio
import sys
from pathlib import Path
from typing import Final, Self

import msgspec
import structlog

from exo.broker import shim
from exo.broker.config import LAME_DUCK_GRACE, ServerSettings, write_config
from exo.broker.errors import ServerStartError

log = structlog.get_logger(__name__)

READY_TIMEOUT: Final = 30.0
"""A store of a million messages is read in half a second; a cold disk may be far slower."""

_POLL: Final = 0.005
_TAIL_BYTES: Final = 8192


class Ports(msgspec.Struct, frozen=True):
    """What nats-server writes into its ports file: URLs."""

    nats: tuple[str, ...]
    monitoring: tuple[str, ...] = ()


_ports_decoder = msgspec.json.Decoder(Ports)


class ServerProcess:
    """A running nats-server. `pid` is the server's own, not the shim's."""

    def __init__(self, shim_process: asyncio.subprocess.Process, settings: ServerSettings, *, pid: int) -> None:
        self._shim = shim_process
        self._settings = settings
        self.pid = pid

    @classmethod
    async def spawn(cls, binary: Path, settings: ServerSettings) -> Self:
        """Write the configuration and start the server; it need not be ready yet."""
        prepare_directory(settings)
        command = [sys.executable, "-I", "-S", shim.__file__, str(binary), "-c", str(settings.config_file)]
        with stderr_file(settings).open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                # A Ctrl-C in the terminal is for the node, which then stops the server in order.
                start_new_session=True,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = await process.stdout.readline()
        except BaseException:
            # Left by us, the shim ends its server and then itself.
            process.stdin.close()
            await process.wait()
            raise
        if not line:
            await process.wait()
            raise ServerStartError("its shim ended at once", log_tail=read_log_tail(settings))
        return cls(process, settings, pid=int(line))

    async def wait_ready(self, timeout: float = READY_TIMEOUT) -> Ports:
        """Give the server's addresses once it takes connections; `ServerStartError` when it never does."""
        file = self._settings.ports_directory / f"nats-server_{self.pid}.ports"
        try:
            async with asyncio.timeout(timeout):
                while (ports := _read_ports(file)) is None:
                    if self._shim.returncode is not None:
                        reason = f"it ended with code {self._shim.returncode}"
                        raise ServerStartError(reason, log_tail=read_log_tail(self._settings))
                    await asyncio.sleep(_POLL)
        except TimeoutError as error:
            tail = read_log_tail(self._settings)
            raise ServerStartError(f"not ready in {timeout:g} s", log_tail=tail) from error
        return ports

    async def wait(self) -> int:
        """Wait for the end; gives the exit code (128 + signal when it was killed)."""
        code = await self._shim.wait()
        self._close()
        return code

    async def stop(self) -> None:
        """Stop in lame-duck mode: clients are told first. Then, if it lingers, terminate, then kill.

        Five seconds at most, so that a node with a hung server still stops in time.
        """
        for order, patience in ((b"u", LAME_DUCK_GRACE + 1.5), (b"t", 1.0), (b"k", 1.5)):
            self._order(order)
            try:
                async with asyncio.timeout(patience):
                    await self.wait()
            except TimeoutError:
                log.warning("nats-server is slow to stop", pid=self.pid, order=order.decode())
            else:
                break

    def reload(self, settings: ServerSettings) -> None:
        """Let it take over other users; whatever else differs would be ignored."""
        self._settings = settings
        settings.config_file.write_text(write_config(settings))
        self._order(b"h")

    async def kill(self) -> None:
        """End it at once."""
        self._order(b"k")
        await self.wait()

    def _order(self, order: bytes) -> None:
        if self._shim.stdin is not None and self._shim.returncode is None:
            self._shim.stdin.write(order)

    def _close(self) -> None:
        if self._shim.stdin is not None:
            self._shim.stdin.close()


def prepare_directory(settings: ServerSettings) -> None:
    """Make the directories and write the configuration, readable by this user only."""
    settings.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    settings.ports_directory.mkdir(exist_ok=True)
    settings.config_file.touch(mode=0o600)
    settings.config_file.write_text(write_config(settings))


def stderr_file(settings: ServerSettings) -> Path:
    """Where the server writes before its own log is open: mistakes in the configuration."""
    return settings.directory / "nats-server.stderr"


def read_log_tail(settings: ServerSettings, *, lines: int = 20) -> list[str]:
    """Give the last lines of the server's log and what it said on stderr."""
    found: list[str] = []
    for file in (settings.log_file, stderr_file(settings)):
        if file.exists():
            with file.open("rb") as stream:
                stream.seek(max(0, file.stat().st_size - _TAIL_BYTES))
                text = stream.read().decode(errors="replace")
                found += [line for line in text.splitlines() if line.strip()][-lines:]
    return found[-lines:]


def _read_ports(file: Path) -> Ports | None:
    try:
        return _ports_decoder.decode(file.read_bytes())
    except (FileNotFoundError, msgspec.DecodeError):
        # It is not written atomically: half a file is no file yet.
        return None
