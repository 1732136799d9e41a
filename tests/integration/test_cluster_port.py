"""Nodes meet on real sockets with real TLS, lose each other, and refuse whoever does not belong.

Each fault test was seen to fail with its mechanism switched off; docs/fault-tests.md says how.
"""

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import structlog

from exo.broker import address_book
from exo.broker.cluster_frames import Burst, Introduction, Ping, Refused, Saying
from exo.broker.credentials import Credentials
from exo.broker.errors import PortBusyError
from exo.broker.hello import SILENCE, Hello
from exo.broker.peers import Peers, admit_all
from exo.streams.ids import NodeId
from support.nats import wait_until
from support.peers import (
    HOST,
    OF_TOMORROW,
    address_of,
    greeted_stream,
    make_hello,
    make_settings,
    running_peers,
    wait_counted,
    wait_met,
    wait_refused,
)

A, B, C = NodeId("a"), NodeId("b"), NodeId("c")


# Meeting.


async def test_two_nodes_meet_by_address_and_hear_each_other() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(a, B)
        await wait_met(b, A)
        assert a.known()[B].hello.name == "the-b"
        assert b.known()[A].address == address_of(a)
        assert a.known()[B].address == address_of(b), "where it listens, not where it dialled from"


async def test_a_third_is_found_by_gossip() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
        running_peers(make_settings("c", bootstrap=(address_of(a),))) as c,
    ):
        await wait_met(b, A, C)
        await wait_met(c, A, B)
        await wait_until(
            lambda: {one.node for one in c.known()[A].hello.members} == {B, C}, what="a says whom it reaches"
        )


async def test_what_a_node_says_arrives_at_once_when_announced() -> None:
    applied = 0
    settings = make_settings("a")
    async with (
        running_peers(settings, hello=lambda: make_hello(settings, applied=applied)) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(b, A)
        heard: list[int] = []
        b.on_change(lambda: heard.append(b.known()[A].hello.position.applied))
        applied = 7
        a.announce()
        await wait_until(lambda: 7 in heard, what="b hears it", timeout=0.3)


async def test_a_peer_is_admitted_before_it_is_told_anything() -> None:
    told: list[str] = []
    gate = asyncio.Event()

    async def admit(hello: Hello) -> None:
        told.append(hello.name)
        await gate.wait()

    async with (
        running_peers(make_settings("a"), admit=admit) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(a, B)
        assert told == ["the-b"]
        a._say_to_all()
        # Frames come in order: once this one is there, a Hello before it would be too.
        a._table.links[B].stream.write(OF_TOMORROW)
        await wait_counted(b, "unknown_frames")
        assert b.known() == {}
        gate.set()
        await wait_met(b, A)


async def test_nodes_that_dial_each_other_keep_one_connection() -> None:
    async with running_peers(make_settings("a")) as a, running_peers(make_settings("b")) as b:
        a.suggest(address_of(b), source="bootstrap")
        b.suggest(address_of(a), source="bootstrap")
        for _ in range(5):
            await wait_met(a, B)
            await wait_met(b, A)
            await wait_until(lambda: count_busy(a) + count_busy(b) == 1, what="the other attempt has ended")
            pair = (a._table.links[B], b._table.links[A])
            for peers in (a, b):
                peers._book.hurry()
                peers._dialler.wake()
            await asyncio.gather(a.measure(B), b.measure(A))
            assert (a._table.links[B], b._table.links[A]) == pair
            pair[0].stream.abort()
            await wait_until(
                lambda pair=pair: (
                    a._table.links.get(B) not in {None, pair[0]} and b._table.links.get(A) not in {None, pair[1]}
                ),
                what="another connection",
            )


async def test_a_second_connection_of_a_connected_node_is_turned_away() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(a, B)
        link = a._table.links[B]
        async with greeted_stream(a, b.settings) as stream:
            frame = await stream.read()
            assert isinstance(frame, Refused)
            assert frame.code == "connected"
        assert a._table.links[B] is link
        assert a.report().refusals == ()


def count_busy(peers: Peers) -> int:
    return sum(entry.busy for entry in peers._book._entries.values())


async def test_the_addresses_of_earlier_peers_are_tried_at_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"
    async with running_peers(make_settings("a")) as a:
        async with running_peers(make_settings("b", bootstrap=(address_of(a),), remembered=file)) as b:
            await wait_met(b, A)
        async with running_peers(make_settings("b", boot="second", remembered=file)) as b:
            await wait_met(b, A)
            await wait_until(lambda: a.known()[B].hello.boot == "second", what="a hears the new boot")


async def test_a_port_in_use_is_an_error_only_when_it_was_chosen() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortBusyError, match="in use by another process"):
            async with running_peers(make_settings("a", port=port, port_is_explicit=True)):
                pass
        async with running_peers(make_settings("a", port=port)) as a:
            assert a.port not in (0, port)


# Loss.


async def test_the_death_of_a_peer_is_noticed_at_once_and_its_return_too() -> None:
    async with running_peers(make_settings("a")) as a:
        async with running_peers(make_settings("b", bootstrap=(address_of(a),))) as b:
            await wait_met(a, B)
            port = b.port
        await wait_until(lambda: not a.known()[B].connected, what="a notices", timeout=0.5)
        assert B in a.reached(), "it was heard a moment ago"
        await wait_until(lambda: B not in a.reached(), what="silence", timeout=SILENCE + 1)
        await wait_until(lambda: "connection_refused" in list_outcomes(a), what="the reason is kept")
        async with running_peers(make_settings("b", boot="second", port=port)):
            await wait_met(a, B)


async def test_a_peer_that_neither_speaks_nor_reads_is_cut_off() -> None:
    async with running_peers(make_settings("a")) as a:
        settings = make_settings("b")
        async with greeted_stream(a, settings) as stream:
            assert isinstance(await stream.read(), Introduction)
            await stream.send(Introduction(make_hello(settings)))
            await stream.send(Saying(make_hello(settings)))
            await wait_met(a, B)
            await wait_until(lambda: not a.known()[B].connected, what="a cuts it off", timeout=SILENCE + 2)


async def test_after_a_standstill_peers_are_not_taken_for_gone() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(a, B)
        await wait_met(b, A)
        lost: list[str] = []
        a.on_change(lambda: lost.extend(node for node, peer in a.known().items() if not peer.connected))
        # What a debugger, a sleep or an overloaded machine does to both: nothing runs, then everything at once.
        a._table._ticked_at -= 60
        a._table._woke_at -= 60
        for link in a._table.links.values():
            link.heard_at -= 60
        assert B in a.reached()
        a._table.tick()
        assert lost == []


# Refusals.


@pytest.mark.parametrize(("a_secret", "b_secret"), [("one", "two"), ("one", ""), ("", "two")])
async def test_who_has_another_secret_is_refused_by_name_on_both_sides(a_secret: str, b_secret: str) -> None:
    async with (
        running_peers(make_settings("a"), secret=a_secret) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),)), secret=b_secret) as b,
    ):
        assert await wait_refused(b, "secret_mismatch", by_us=True) == "the-a"
        assert await wait_refused(a, "secret_mismatch", by_us=False) == "the-b"
        assert a.known() == b.known() == {}
        assert "secret_mismatch" in list_outcomes(b)


async def test_another_cluster_is_refused_by_name() -> None:
    async with (
        running_peers(make_settings("a", cluster="home")) as a,
        running_peers(make_settings("b", cluster="work", bootstrap=(address_of(a),))) as b,
    ):
        assert await wait_refused(a, "other_cluster", by_us=True) == "the-b"
        await wait_until(lambda: bool(b.report().refusals), what="b hears it")
        (refusal,) = b.report().refusals
        assert (refusal.name, refusal.cluster, refusal.code) == ("the-a", "home", "other_cluster")


async def test_a_second_process_with_our_id_is_refused_and_told() -> None:
    async with (
        running_peers(make_settings("a", boot="first")) as first,
        running_peers(make_settings("a", boot="second", bootstrap=(address_of(first),))) as second,
    ):
        for peers in (first, second):
            await wait_until(
                lambda peers=peers: [one.code for one in peers.report().refusals] == ["duplicate_node"],
                what="both know of the clone",
            )


async def test_a_third_node_refuses_the_clone_of_a_connected_one() -> None:
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(running_peers(make_settings("b")))
        here = (address_of(watcher),)
        first = await stack.enter_async_context(running_peers(make_settings("a", boot="first", bootstrap=here)))
        await wait_met(first, B)
        clone = await stack.enter_async_context(running_peers(make_settings("a", boot="clone", bootstrap=here)))
        assert await wait_refused(watcher, "duplicate_node", by_us=True) == "the-a"
        assert await wait_refused(clone, "duplicate_node", by_us=False) == "the-b"
        assert watcher.known()[A].hello.boot == "first"


async def test_a_clone_that_lives_on_is_refused_with_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_book, "FIRST_PAUSE", 0.05)
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(running_peers(make_settings("b")))
        here = (address_of(watcher),)
        first = await stack.enter_async_context(running_peers(make_settings("a", boot="first", bootstrap=here)))
        await wait_met(first, B)
        clone = await stack.enter_async_context(running_peers(make_settings("a", boot="clone", bootstrap=here)))
        await wait_until(lambda: clone.report().attempts[0].failures >= 4, what="its failures count on")
        (refusal,) = watcher.report().refusals
        assert refusal.node in watcher.reached(), "it is told although the first of that id is a member"


async def test_a_refusal_is_over_once_the_node_is_met() -> None:
    async with running_peers(make_settings("a"), secret="new") as a:
        async with running_peers(make_settings("b", bootstrap=(address_of(a),))) as b:
            await wait_refused(a, "secret_mismatch", by_us=False)
            await b.rekey(Credentials("home", "new"))
            await wait_met(a, B)
            await wait_met(b, A)
            assert b.report().refusals == ()
        assert a.report().refusals == (), "it is no news when the node has left again"


@pytest.mark.parametrize("failing", ["a", "b"])
async def test_who_cannot_be_let_in_is_dialled_with_growing_pauses_and_told_once(failing: str) -> None:
    async def fail(hello: Hello) -> None:
        raise RuntimeError(f"no place for {hello.name}")

    admits = {name: fail if name == failing else admit_all for name in "ab"}
    async with AsyncExitStack() as stack:
        logs = stack.enter_context(structlog.testing.capture_logs())
        a = await stack.enter_async_context(running_peers(make_settings("a"), admit=admits["a"]))
        settings = make_settings("b", bootstrap=(address_of(a),))
        b = await stack.enter_async_context(running_peers(settings, admit=admits["b"]))
        for peers in (a, b):
            await wait_until(
                lambda peers=peers: any(one.failures >= 3 for one in peers.report().attempts),
                what="failures count on at both ends",
            )
        outside = a if failing == "a" else b
        (unadmitted,) = outside.report().unadmitted
        assert unadmitted.reason.startswith("RuntimeError: no place for the-")
        assert len([one for one in logs if one["event"] == "a peer cannot be let in"]) == 1


async def test_our_own_address_is_known_as_such() -> None:
    async with running_peers(make_settings("a")) as a:
        a.suggest(f"localhost:{a.port}", source="bootstrap")
        await wait_until(lambda: "same_node" in list_outcomes(a), what="it meets itself")
        assert a.report().refusals == ()


async def test_a_new_secret_closes_the_cluster_to_those_without_it() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
        running_peers(make_settings("c", bootstrap=(address_of(a),))) as c,
    ):
        await wait_met(a, B, C)
        await wait_met(b, A, C)
        for peers in (a, b):
            await peers.rekey(Credentials("home", "new"))
        await wait_until(lambda: a.known()[B].connected and not a.known()[C].connected, what="only b came back")
        # Whoever dialled is the first to see that the proof is wrong.
        await wait_until(
            lambda: any(one.code == "secret_mismatch" and one.name == "the-c" for one in a.report().refusals),
            what="c is refused by name",
        )
        await wait_until(lambda: bool(c.report().refusals), what="c knows why")


# Links.


async def test_latency_and_bandwidth_of_a_link_are_plausible() -> None:
    async with (
        running_peers(make_settings("a")) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(b, A)
        (sample,) = await b.measure(A)
        assert (sample.local_address, sample.remote_address) == (HOST, HOST)
        assert 1e-6 < sample.latency < 0.5
        assert 1e6 < sample.bandwidth < 1e11
        assert await b.measure(NodeId("nobody")) == []
        assert a.report().counters == {}, "a probe is no trouble"


async def test_hellos_pass_while_a_link_is_measured() -> None:
    applied = 0
    settings = make_settings("a")

    def hello() -> Hello:
        nonlocal applied
        applied += 1
        return make_hello(settings, applied=applied)

    async with (
        running_peers(settings, hello=hello) as a,
        running_peers(make_settings("b", bootstrap=(address_of(a),))) as b,
    ):
        await wait_met(b, A)
        before = b.known()[A].hello.position.applied
        measuring = asyncio.create_task(b.measure(A))
        a.announce()
        await wait_until(lambda: b.known()[A].hello.position.applied > before, what="a Hello comes", timeout=0.5)
        assert await measuring


async def test_a_probe_that_asks_for_too_much_or_for_nonsense_is_closed() -> None:
    async with running_peers(make_settings("a")) as a:
        async with greeted_stream(a, make_settings("b"), purpose="measure") as stream:
            await stream.send(Ping(1))
            await stream.read()
            await stream.send(Burst("x" * 100))
            await stream.send(Saying(make_hello(make_settings("b"))))
            with pytest.raises(EOFError):
                await stream.read()
        await wait_counted(a, "garbage")


# Addresses.


async def test_each_address_keeps_the_reason_why_it_failed() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        bootstrap = (f"{HOST}:{closed.getsockname()[1]}", "no-such-host.invalid", "10.0.0.1:notaport", "/udp/1/2")
        async with running_peers(make_settings("a", bootstrap=bootstrap)) as a:
            await wait_until(
                lambda: set(list_outcomes(a)) == {"connection_refused", "name_unknown"}, what="both were tried"
            )
            assert {bad.text for bad in a.report().bad_addresses} == {"10.0.0.1:notaport", "/udp/1/2"}


async def test_a_peer_that_comes_later_is_met() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
        async with running_peers(make_settings("a", bootstrap=(f"{HOST}:{port}",))) as a:
            await wait_until(lambda: "connection_refused" in list_outcomes(a), what="it was tried in vain")
            closed.close()
            async with running_peers(make_settings("b", port=port, port_is_explicit=True)):
                await wait_met(a, B)


def list_outcomes(peers: Peers) -> list[str]:
    return [attempt.outcome for attempt in peers.report().attempts]
