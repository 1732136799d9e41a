"""The stores of sessions on disk: resumed, put aside, cleared away."""

from pathlib import Path

import msgspec

from exo.broker.private_files import write_private
from exo.broker.sessions import KEPT, Session, SessionStores
from exo.broker.store import StoreLock
from exo.streams.ids import SessionId


def make(stores: SessionStores, name: str, *, finish: bool = True) -> SessionId:
    session = stores.create(SessionId(name))
    if finish:
        stores.finish(session)
    return session.session


async def test_a_finished_session_is_found(tmp_path: Path) -> None:
    make(SessionStores(tmp_path, cluster="c"), "s1")
    found = await SessionStores(tmp_path, cluster="c").find()
    assert found is not None
    assert (found.session, found.inaugurated) == ("s1", True)


async def test_a_half_made_one_is_removed(tmp_path: Path) -> None:
    stores = SessionStores(tmp_path, cluster="c")
    make(stores, "s1", finish=False)
    (tmp_path / "sessions" / "junk").mkdir()
    assert await stores.find() is None
    assert list((tmp_path / "sessions").iterdir()) == []
    assert not (tmp_path / "archive").exists()


async def test_a_session_of_another_cluster_is_left_for_the_way_back(tmp_path: Path) -> None:
    make(SessionStores(tmp_path, cluster="c"), "s1")
    other = SessionStores(tmp_path, cluster="other")
    assert await other.find() is None
    other.archive_all_but(make(other, "s2"))
    found = await SessionStores(tmp_path, cluster="c").find()
    assert found is not None
    assert found.session == "s1"
    assert not (tmp_path / "archive").exists()


async def test_only_some_sessions_of_other_clusters_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        stores = SessionStores(tmp_path, cluster=f"c{number}")
        write_private(
            stores.directory_of(SessionId(f"s{number}")) / "session.json",
            msgspec.json.encode(
                Session(session=SessionId(f"s{number}"), since=number, cluster=f"c{number}", inaugurated=True)
            ),
        )
    assert await SessionStores(tmp_path, cluster="now").find() is None
    kept = sorted(one.name for one in (tmp_path / "sessions").iterdir())
    assert kept == [f"s{number}" for number in range(2, KEPT + 2)]
    assert len(list((tmp_path / "archive").iterdir())) == 2


async def test_the_archive_is_bounded_and_keeps_the_newest(tmp_path: Path) -> None:
    stores = SessionStores(tmp_path, cluster="c")
    for number in range(KEPT + 3):
        stores.archive(make(stores, f"s{number}"))
    kept = sorted(kept.name.partition("-")[0] for kept in (tmp_path / "archive").iterdir())
    assert kept == [f"s{number}" for number in range(3, KEPT + 3)]


async def test_following_puts_aside_what_is_left(tmp_path: Path) -> None:
    stores = SessionStores(tmp_path, cluster="c")
    make(stores, "s1")
    make(stores, "s2")
    stores.archive_all_but(SessionId("s2"))
    assert [one.name for one in (tmp_path / "sessions").iterdir()] == ["s2"]


async def test_a_store_in_use_stays(tmp_path: Path) -> None:
    stores = SessionStores(tmp_path, cluster="c")
    session = make(stores, "s1")
    with StoreLock(stores.directory_of(session)):
        stores.archive(session)
    assert stores.directory_of(session).exists()
