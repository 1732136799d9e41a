"""State in a file of this node, so that a cluster that was switched off as a whole begins again from it.

Written while the node runs and when it stops, read once when it starts; the event log has the last word.
"""

import asyncio
import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from exo.services.clock import Clock
from exo.services.snapshots.store import pack_state, unpack_state
from exo.streams.state import State

log = structlog.get_logger(__name__)

DIRECTORY = "standby"
EVERY = 5.0
"""Seconds between two looks for a change."""


class StateSource(Protocol):
    """The projection, as far as it matters here."""

    @property
    def state(self) -> State: ...


class StandbyFile:
    """One file for each name that the cluster of this node ever had: what belongs to another is never taken over.

    `directory` is that of the data, `cluster` the name of now; empty is the one that nobody chose.
    """

    def __init__(self, directory: Path, *, cluster: str, clock: Clock) -> None:
        name = hashlib.sha256(cluster.encode()).hexdigest()[:16] if cluster else "unnamed"
        self.path = directory / DIRECTORY / f"{name}.snapshot"
        self._clock = clock
        self._written: State | None = None

    def read(self) -> State | None:
        """Give the State of an earlier run; None when there is none or it is damaged."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("the stored state cannot be read and is not used", path=str(self.path), reason=str(error))
            return None
        state = unpack_state(data)
        if state is None:
            log.warning("the stored state is damaged or of another version and is not used", path=str(self.path))
        return state

    async def run(self, source: StateSource) -> None:
        """Write whenever State has changed, until cancelled."""
        while True:
            await self._clock.sleep(EVERY)
            await self.write(source.state)

    async def write(self, state: State) -> None:
        """Store State, unless it is stored already; a disk that refuses is reported, nothing depends on it."""
        if state is self._written or not state.session:
            return
        try:
            await asyncio.to_thread(_replace, self.path, state)
        except OSError as error:
            log.warning("the state of the cluster could not be stored", path=str(self.path), reason=str(error))
        else:
            self._written = state


def _replace(path: Path, state: State) -> None:
    draft = path.with_suffix(".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(pack_state(state))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise
