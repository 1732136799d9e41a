"""The stores of hub sessions on this disk: which can be resumed, and where the others go.

Used by `cluster.py`. `sessions/<session>/` holds one nats-server store and `session.json`; a store that
nobody follows any more lies in `archive/` for a while, because a person may want to look into it.
One of a cluster of another name stays where it is: the node may go back to that cluster.
Never touches a store that another process holds.
"""

import shutil
import time
from pathlib import Path
from typing import Final

import msgspec
import structlog

from exo.broker.errors import StoreLockedError
from exo.broker.private_files import write_private
from exo.broker.store import StoreLock, stop_leftovers
from exo.streams.ids import SessionId

log = structlog.get_logger(__name__)

KEPT: Final = 2
"""Archived stores, and as many of clusters of other names; each may hold some gigabytes."""

_FILE: Final = "session.json"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One incarnation of a hub store. `since` is Unix ms; `inaugurated` once its first epoch record is written."""

    session: SessionId
    since: int
    cluster: str
    inaugurated: bool = False


class SessionStores:
    """All stores below one directory."""

    def __init__(self, directory: Path, *, cluster: str) -> None:
        self._sessions = directory / "sessions"
        self._archive = directory / "archive"
        self._cluster = cluster

    def directory_of(self, session: SessionId) -> Path:
        """Where the store of this session is."""
        return self._sessions / session

    async def find(self) -> Session | None:
        """Give the session that can be resumed; clears away whatever cannot.

        Servers that a killed process left on one of the stores are stopped first.
        """
        found, foreign = list[Session](), list[Session]()
        for directory in sorted(self._sessions.glob("*")):
            with StoreLock(directory):
                await stop_leftovers(directory / "ports", config_file=directory / "nats-server.conf")
            session = _read(directory)
            if session is None or not session.inaugurated:
                log.warning("removing a store that was never finished", directory=str(directory))
                shutil.rmtree(directory)
            else:
                (found if session.cluster == self._cluster else foreign).append(session)
        found.sort(key=lambda session: session.since)
        foreign.sort(key=lambda session: session.since)
        for older in (*found[:-1], *foreign[:-KEPT]):
            self.archive(older.session)
        return found[-1] if found else None

    def create(self, session: SessionId) -> Session:
        """Begin a store."""
        made = Session(session=session, since=time.time_ns() // 1_000_000, cluster=self._cluster)
        self._write(made)
        return made

    def finish(self, session: Session) -> Session:
        """Remember that a session is complete and can be resumed."""
        finished = msgspec.structs.replace(session, inaugurated=True)
        self._write(finished)
        return finished

    def discard(self, session: SessionId) -> None:
        """Remove a store that did not come to life."""
        shutil.rmtree(self.directory_of(session), ignore_errors=True)

    def archive(self, session: SessionId) -> None:
        """Put a store aside; without effect when there is none."""
        source = self.directory_of(session)
        if not source.exists():
            return
        try:
            with StoreLock(source):
                self._archive.mkdir(parents=True, exist_ok=True, mode=0o700)
                source.rename(self._archive / f"{session}-{time.time_ns()}")
        except StoreLockedError as error:
            log.warning("a store is in use and stays", reason=str(error))
            return
        log.info("store archived", session=session)
        # Their names end with the time.
        by_age = sorted(self._archive.iterdir(), key=lambda kept: kept.name.rpartition("-")[2])
        for oldest in by_age[:-KEPT]:
            shutil.rmtree(oldest, ignore_errors=True)

    def archive_all_but(self, session: SessionId) -> None:
        """Put aside what is not of the session that the cluster follows."""
        for directory in sorted(self._sessions.glob("*")):
            stored = _read(directory)
            is_foreign = stored is not None and stored.cluster != self._cluster
            if directory.name != session and not is_foreign:
                self.archive(SessionId(directory.name))

    def _write(self, session: Session) -> None:
        write_private(self.directory_of(session.session) / _FILE, msgspec.json.encode(session))


def _read(directory: Path) -> Session | None:
    try:
        return msgspec.json.decode((directory / _FILE).read_bytes(), type=Session)
    except (OSError, msgspec.DecodeError):
        return None
