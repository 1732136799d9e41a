"""What every `Bus` does. `tests/contract` runs it against the real server and against `MemoryBus`.

A subclass gives the `bus` fixture, and `other`, a second connection to the same broker.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise

import pytest

from exo.broker.blobs import Blobs
from exo.broker.bus import Ack, Bus, Delivery, StoredMessage, WorkItem
from exo.broker.errors import (
    BusUnavailableError,
    ConflictError,
    NoResponderError,
    NotFoundError,
    PayloadTooLargeError,
)
from exo.broker.poison import read_poisoned
from exo.streams import envelope
from exo.streams.layout import MAX_PAYLOAD, MIB
from support.nats import wait_until

EVENT = "exo.events.node.n1.joined"
EPOCH = "exo.events.epoch"
TOKENS = "exo.tokens.n1.t1"


async def take(messages: AsyncIterator[StoredMessage], number: int) -> list[StoredMessage]:
    found: list[StoredMessage] = []
    async with asyncio.timeout(10):
        async for message in messages:
            found.append(message)
            if len(found) == number:
                return found
    raise AssertionError("the follower ended")


async def take_work(items: AsyncIterator[WorkItem]) -> WorkItem:
    async with asyncio.timeout(10):
        return await anext(items)


class CoreConformance:
    async def test_a_subscriber_gets_what_matches_in_order(self, bus: Bus, other: Bus) -> None:
        heard: list[Delivery] = []
        await bus.subscribe("exo.telemetry.*.memory", heard.append)
        await bus.flush()
        for number in range(100):
            await other.publish("exo.telemetry.n1.memory", str(number).encode())
            await other.publish("exo.telemetry.n1.power", b"no")
        await other.flush()
        await wait_until(lambda: len(heard) == 100, what="all deliveries")
        assert [int(delivery.payload) for delivery in heard] == list(range(100))
        assert heard[0].subject == "exo.telemetry.n1.memory"

    async def test_a_stopped_subscription_is_silent(self, bus: Bus) -> None:
        heard: list[Delivery] = []
        subscription = await bus.subscribe("exo.telemetry.>", heard.append)
        await subscription.stop()
        await subscription.stop()
        await bus.publish("exo.telemetry.n1.memory", b"x")
        await bus.flush()
        assert heard == []

    async def test_a_failing_handler_loses_only_its_own_message(self, bus: Bus) -> None:
        heard: list[bytes] = []

        def handle(delivery: Delivery) -> None:
            heard.append(delivery.payload)
            if delivery.payload == b"bad":
                raise ValueError

        await bus.subscribe("exo.telemetry.>", handle)
        await bus.publish("exo.telemetry.n1.memory", b"bad")
        await bus.publish("exo.telemetry.n1.memory", b"good")
        await bus.flush()
        await wait_until(lambda: len(heard) == 2, what="both deliveries")
        assert heard == [b"bad", b"good"]

    async def test_a_request_is_answered(self, bus: Bus, other: Bus) -> None:
        async def double(payload: bytes) -> bytes:
            return payload * 2

        await bus.respond("exo.control.n1.echo", double)
        assert await other.request("exo.control.n1.echo", b"ab", timeout=5) == b"abab"

    async def test_requests_are_answered_side_by_side(self, bus: Bus, other: Bus) -> None:
        both = asyncio.Barrier(2)

        async def meet(payload: bytes) -> bytes:
            await both.wait()
            return payload

        await bus.respond("exo.control.n1.meet", meet)
        calls = (other.request("exo.control.n1.meet", body, timeout=5) for body in (b"a", b"b"))
        assert sorted(await asyncio.gather(*calls)) == [b"a", b"b"]

    async def test_a_request_to_nobody_fails_at_once(self, bus: Bus) -> None:
        async with asyncio.timeout(5):
            with pytest.raises(NoResponderError):
                await bus.request("exo.control.nobody.echo", b"", timeout=60)

    async def test_a_silent_responder_is_told_by_a_timeout(self, bus: Bus) -> None:
        await bus.subscribe("exo.control.n1.silent", lambda _: None)
        with pytest.raises(BusUnavailableError, match="no answer"):
            await bus.request("exo.control.n1.silent", b"", timeout=0.05)

    async def test_a_failing_responder_is_told_without_waiting(self, bus: Bus) -> None:
        async def fail(_payload: bytes) -> bytes:
            raise ValueError

        await bus.respond("exo.control.n1.fail", fail)
        async with asyncio.timeout(5):
            with pytest.raises(BusUnavailableError, match="failed"):
                await bus.request("exo.control.n1.fail", b"", timeout=60)

    async def test_an_oversized_message_is_refused_and_the_connection_lives(self, bus: Bus) -> None:
        with pytest.raises(PayloadTooLargeError) as caught:
            await bus.publish("exo.telemetry.n1.memory", bytes(MAX_PAYLOAD + 1))
        assert caught.value.limit == MAX_PAYLOAD
        await bus.flush()
        assert bus.connected

    async def test_a_closed_bus_says_so(self, bus: Bus) -> None:
        await bus.close()
        await bus.close()
        assert not bus.connected
        with pytest.raises(BusUnavailableError):
            await bus.publish("exo.telemetry.n1.memory", b"")
        with pytest.raises(BusUnavailableError):
            await bus.append(EVENT, b"")
        with pytest.raises(BusUnavailableError):
            await take(bus.follow("EXO_EVENTS", after=0), 1)


class StreamConformance:
    async def test_appended_messages_are_numbered(self, bus: Bus) -> None:
        assert [await bus.append(EVENT, b"x") for _ in range(2)] == [Ack("EXO_EVENTS", 1), Ack("EXO_EVENTS", 2)]

    async def test_a_message_id_is_stored_once(self, bus: Bus, other: Bus) -> None:
        headers = envelope.headers_of_fact("one")
        first = await bus.append(EVENT, b"x", headers=headers)
        again = await other.append(EVENT, b"x", headers=headers)
        assert again == Ack("EXO_EVENTS", first.sequence, duplicate=True)
        assert (await bus.stream_info("EXO_EVENTS")).messages == 1

    async def test_a_deposed_master_cannot_write(self, bus: Bus, other: Bus) -> None:
        old = await bus.append(EPOCH, b"1", headers=envelope.headers_of_epoch("e1", last_epoch_sequence=0))
        decision = envelope.headers_of_decision("d1", epoch_sequence=old.sequence)
        await bus.append("exo.events.master.task.t1.assigned", b"a", headers=decision)

        new = await other.append(EPOCH, b"2", headers=envelope.headers_of_epoch("e2", last_epoch_sequence=old.sequence))

        late = envelope.headers_of_decision("d2", epoch_sequence=old.sequence)
        with pytest.raises(ConflictError):
            await bus.append("exo.events.master.task.t2.assigned", b"b", headers=late)
        with pytest.raises(ConflictError):
            await bus.append("exo.events.master.task.t1.assigned", b"a", headers=decision)
        kept = envelope.headers_of_decision("d3", epoch_sequence=new.sequence)
        assert (await other.append("exo.events.master.task.t2.assigned", b"b", headers=kept)).sequence == 4

    async def test_a_repeated_epoch_record_is_a_conflict(self, bus: Bus) -> None:
        """The writer tells its own record from a rival's by reading it."""
        headers = envelope.headers_of_epoch("e1", last_epoch_sequence=0)
        await bus.append(EPOCH, b"1", headers=headers)
        with pytest.raises(ConflictError):
            await bus.append(EPOCH, b"1", headers=headers)

    async def test_a_subject_without_a_stream_is_refused(self, bus: Bus) -> None:
        with pytest.raises(NoResponderError):
            await bus.append("exo.control.n1.nothing", b"")

    async def test_payload_and_headers_count_together(self, bus: Bus) -> None:
        with pytest.raises(PayloadTooLargeError):
            await bus.append(EVENT, bytes(MAX_PAYLOAD), headers=envelope.headers_of_fact("big"))
        assert bus.connected

    async def test_published_messages_are_captured_and_read_back(self, bus: Bus) -> None:
        for number in range(20):
            await bus.publish(TOKENS, str(number).encode())
            await bus.publish("exo.tokens.n2.other", b"no")
        await bus.flush()

        async def stored() -> bool:
            return (await bus.stream_info("EXO_TOKENS")).messages == 40

        # The stream takes in what it does not acknowledge a moment later.
        await wait_until(stored, what="all chunks stored")
        found = await bus.read("EXO_TOKENS", "exo.tokens.*.t1")
        assert [int(message.payload) for message in found] == list(range(20))
        assert {message.subject for message in found} == {TOKENS}
        assert all(before.sequence < after.sequence for before, after in pairwise(found))
        assert found[0].time > 1_600_000_000_000

    async def test_reading_starts_and_stops_where_asked(self, bus: Bus) -> None:
        for number in range(10):
            await bus.append(EVENT, str(number).encode())
        found = await bus.read("EXO_EVENTS", ">", start=4, limit=3)
        assert [message.sequence for message in found] == [4, 5, 6]
        assert await bus.read("EXO_EVENTS", ">", start=11) == []
        assert await bus.read("EXO_EVENTS", "exo.events.master.>") == []

    async def test_a_long_read_is_complete(self, bus: Bus) -> None:
        await asyncio.gather(*(bus.append(EVENT, b"x") for _ in range(1500)))
        assert [m.sequence for m in await bus.read("EXO_EVENTS", ">", limit=1200)] == list(range(1, 1201))

    async def test_the_last_message_of_a_subject(self, bus: Bus) -> None:
        assert await bus.get_last("EXO_EVENTS", EVENT) is None
        await bus.append(EVENT, b"1")
        await bus.append(EVENT, b"2")
        await bus.append("exo.events.node.n2.joined", b"3")
        last = await bus.get_last("EXO_EVENTS", EVENT)
        assert last is not None
        assert (last.subject, last.sequence, last.payload) == (EVENT, 2, b"2")

    async def test_one_message_per_subject(self, bus: Bus) -> None:
        await bus.append("exo.requests.t1", b"old")
        await bus.append("exo.requests.t1", b"new")
        assert [message.payload for message in await bus.read("EXO_REQUESTS", ">")] == [b"new"]

    async def test_purging_below_a_sequence_and_by_subject(self, bus: Bus) -> None:
        for number in range(6):
            await bus.append(f"exo.events.node.n{number % 2}.joined", b"x")
        await bus.purge("EXO_EVENTS", below=3)
        assert (await bus.stream_info("EXO_EVENTS")).first_sequence == 3
        await bus.purge("EXO_EVENTS", subject="exo.events.node.n1.joined")
        assert [message.sequence for message in await bus.read("EXO_EVENTS", ">")] == [3, 5]
        await bus.purge("EXO_EVENTS")
        info = await bus.stream_info("EXO_EVENTS")
        assert (info.messages, info.first_sequence, info.last_sequence) == (0, 7, 6)

    async def test_stream_infos_name_the_layout(self, bus: Bus) -> None:
        infos = {info.name: info for info in await bus.stream_infos()}
        assert {"EXO_COMMANDS", "EXO_EVENTS", "EXO_TOKENS", "EXO_POISON"} <= infos.keys()
        empty = infos["EXO_EVENTS"]
        assert (empty.messages, empty.first_sequence, empty.last_sequence) == (0, 1, 0)

    async def test_an_unknown_stream_is_not_found(self, bus: Bus) -> None:
        with pytest.raises(NotFoundError):
            await bus.stream_info("EXO_NOTHING")

    async def test_blobs_come_back_whole(self, bus: Bus, other: Bus) -> None:
        body = bytes(range(256)) * (5 * MIB // 256 + 1)
        await Blobs(bus).put("task/t1", body)
        assert await Blobs(other).get("task/t1") == body
        await Blobs(bus).put("task/t1", b"")
        assert await Blobs(other).get("task/t1") == b""
        await Blobs(bus).delete("task/t1")
        with pytest.raises(NotFoundError):
            await Blobs(bus).get("task/t1")


class FollowConformance:
    async def test_a_follower_gets_old_and_new_messages(self, bus: Bus, other: Bus) -> None:
        for number in range(3):
            await bus.append(EVENT, str(number).encode())
        async with aclosing(bus.follow("EXO_EVENTS", after=1)) as messages:
            assert [message.sequence for message in await take(messages, 2)] == [2, 3]
            await other.append(EVENT, b"3")
            (newest,) = await take(messages, 1)
            assert (newest.subject, newest.sequence, newest.payload) == (EVENT, 4, b"3")

    async def test_many_messages_come_in_order(self, bus: Bus) -> None:
        await asyncio.gather(*(bus.append(EVENT, b"x" * 200) for _ in range(3000)))
        found = await take(bus.follow("EXO_EVENTS", after=0), 3000)
        assert [message.sequence for message in found] == list(range(1, 3001))

    async def test_a_position_before_the_first_message_is_refused(self, bus: Bus) -> None:
        for _ in range(5):
            await bus.append(EVENT, b"x")
        await bus.purge("EXO_EVENTS", below=4)
        with pytest.raises(NotFoundError):
            await take(bus.follow("EXO_EVENTS", after=2), 1)
        assert [message.sequence for message in await take(bus.follow("EXO_EVENTS", after=3), 2)] == [4, 5]

    async def test_a_position_beyond_the_last_message_is_refused(self, bus: Bus) -> None:
        await bus.append(EVENT, b"x")
        with pytest.raises(NotFoundError):
            await take(bus.follow("EXO_EVENTS", after=7), 1)

    async def test_messages_removed_in_between_are_no_gap(self, bus: Bus) -> None:
        for number in (1, 2, 1):
            await bus.append(f"exo.events.node.n{number}.joined", b"x")
        await bus.purge("EXO_EVENTS", subject="exo.events.node.n2.joined")
        assert [message.sequence for message in await take(bus.follow("EXO_EVENTS", after=0), 2)] == [1, 3]


class WorkConformance:
    async def test_work_comes_one_at_a_time_and_is_removed(self, bus: Bus) -> None:
        for number in range(2):
            await bus.append("exo.commands.task.submit", str(number).encode())
        async with aclosing(bus.work("EXO_COMMANDS", name="master")) as items:
            for number in range(2):
                item = await take_work(items)
                assert (item.message.payload, item.message.sequence, item.deliveries) == (
                    str(number).encode(),
                    number + 1,
                    1,
                )
                await item.ack()
        info = await bus.stream_info("EXO_COMMANDS")
        assert (info.messages, info.consumers) == (0, 1)

    async def test_work_that_was_not_settled_comes_again(self, bus: Bus, other: Bus) -> None:
        await bus.append("exo.commands.task.submit", b"x")
        async with aclosing(bus.work("EXO_COMMANDS", name="master", ack_wait=0.3)) as items:
            assert (await take_work(items)).deliveries == 1
        async with aclosing(other.work("EXO_COMMANDS", name="master", ack_wait=0.3)) as items:
            again = await take_work(items)
            assert (again.message.payload, again.deliveries) == (b"x", 2)
            await again.ack()

    async def test_refused_work_comes_again_at_once(self, bus: Bus) -> None:
        await bus.append("exo.commands.task.submit", b"x")
        async with aclosing(bus.work("EXO_COMMANDS", name="master", ack_wait=30)) as items:
            await (await take_work(items)).nak()
            assert (await take_work(items)).deliveries == 2

    async def test_work_in_progress_is_not_given_to_others(self, bus: Bus) -> None:
        await bus.append("exo.commands.task.submit", b"x")
        async with aclosing(bus.work("EXO_COMMANDS", name="master", ack_wait=1)) as items:
            item = await take_work(items)
            following = asyncio.ensure_future(anext(items))
            for _ in range(4):
                done, _ = await asyncio.wait({following}, timeout=0.4)
                assert not done
                await item.in_progress()
            await item.ack()
            following.cancel()
            await asyncio.wait({following})
        assert (await bus.stream_info("EXO_COMMANDS")).messages == 0

    async def test_given_up_work_is_copied_to_the_poison_stream(self, bus: Bus) -> None:
        await bus.append("exo.commands.task.submit", b"\xff{")
        async with aclosing(bus.work("EXO_COMMANDS", name="master")) as items:
            await (await take_work(items)).term("cannot be read")
        (copy,) = await bus.read("EXO_POISON", "exo.poison.exo-commands")
        poisoned = read_poisoned(copy.payload)
        assert (poisoned.stream, poisoned.sequence, poisoned.reason) == ("EXO_COMMANDS", 1, "cannot be read")
        assert poisoned.read_payload() == b"\xff{"
        assert (await bus.stream_info("EXO_COMMANDS")).messages == 0

    async def test_work_that_never_succeeds_is_poisoned(self, bus: Bus) -> None:
        await bus.append("exo.commands.task.submit", b"bad")
        await bus.append("exo.commands.task.submit", b"good")
        seen: list[bytes] = []
        async with aclosing(bus.work("EXO_COMMANDS", name="master", max_deliver=2)) as items:
            while seen[-1:] != [b"good"]:
                item = await take_work(items)
                if item.message.payload == b"bad":
                    await item.nak()
                else:
                    seen.append(item.message.payload)
                    await item.ack()
            await wait_for_poison(bus, items)
        (copy,) = await bus.read("EXO_POISON", ">")
        poisoned = read_poisoned(copy.payload)
        assert (poisoned.text, poisoned.deliveries) == ("bad", 3)


async def wait_for_poison(bus: Bus, items: AsyncIterator[WorkItem]) -> None:
    """Keep the loop running until it has given up what it holds."""
    following = asyncio.ensure_future(anext(items))
    async with asyncio.timeout(10):
        while not (await bus.stream_info("EXO_POISON")).messages:
            if following.done():
                await following.result().nak()
                following = asyncio.ensure_future(anext(items))
            await asyncio.sleep(0.005)
    following.cancel()
    await asyncio.wait({following})


class KeyConformance:
    async def test_a_key_is_written_read_and_deleted(self, bus: Bus, other: Bus) -> None:
        assert await bus.get("exo_snapshot", "state") is None
        revision = await bus.put("exo_snapshot", "state", b"one")
        entry = await other.get("exo_snapshot", "state")
        assert entry is not None
        assert (entry.key, entry.value, entry.revision) == ("state", b"one", revision)
        await other.delete("exo_snapshot", "state")
        assert await bus.get("exo_snapshot", "state") is None
        assert await bus.keys("exo_snapshot") == {}

    async def test_only_the_first_creates(self, bus: Bus, other: Bus) -> None:
        await bus.put("exo_lease", "master", b"a", revision=0, ttl=3)
        with pytest.raises(ConflictError):
            await other.put("exo_lease", "master", b"b", revision=0, ttl=3)
        entry = await other.get("exo_lease", "master")
        assert entry is not None
        assert entry.value == b"a"

    async def test_a_deleted_key_can_be_created_again(self, bus: Bus) -> None:
        await bus.put("exo_lease", "master", b"a", revision=0)
        await bus.delete("exo_lease", "master")
        await bus.put("exo_lease", "master", b"b", revision=0)
        with pytest.raises(ConflictError):
            await bus.put("exo_lease", "master", b"c", revision=0)

    async def test_an_old_revision_is_refused(self, bus: Bus) -> None:
        first = await bus.put("exo_lease", "master", b"a", revision=0)
        second = await bus.put("exo_lease", "master", b"b", revision=first)
        with pytest.raises(ConflictError):
            await bus.put("exo_lease", "master", b"c", revision=first)
        assert await bus.put("exo_lease", "master", b"c", revision=second) > second

    async def test_an_empty_value_counts_as_absent(self, bus: Bus) -> None:
        await bus.put("exo_lease", "master", b"")
        assert await bus.get("exo_lease", "master") is None
        assert await bus.keys("exo_lease") == {}
        await bus.put("exo_lease", "master", b"a", revision=0)

    async def test_all_keys_with_a_value(self, bus: Bus) -> None:
        for name in ("n1", "n2", "n3"):
            await bus.put("exo_nodes", name, name.encode(), ttl=30)
        await bus.delete("exo_nodes", "n2")
        assert {key: entry.value for key, entry in (await bus.keys("exo_nodes")).items()} == {
            "n1": b"n1",
            "n3": b"n3",
        }

    @pytest.mark.parametrize("key", ["", "a b", "*", "a.>", ".a"])
    async def test_a_bad_key_is_refused(self, bus: Bus, key: str) -> None:
        with pytest.raises(ValueError, match="not a key"):
            await bus.put("exo_nodes", key, b"x")


class BusConformance(CoreConformance, StreamConformance, FollowConformance, WorkConformance, KeyConformance):
    """All planes."""
