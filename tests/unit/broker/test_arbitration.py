"""Who is hub: each rule by an example. The laws are in tests/property/test_arbitration_laws.py."""

from typing import Any

import pytest

from exo.broker.arbitration import (
    ASKING,
    LOST_AFTER,
    PATIENCE,
    SETTLE,
    Decision,
    Follow,
    Keep,
    Resume,
    Serve,
    View,
    Wait,
    Yield,
    choose_hub,
    choose_successor,
    decide,
    rank,
)
from exo.broker.hello import Hello, Position
from exo.broker.peering import Attempt, DiscoveryState, PeersReport, PeersSettings
from exo.broker.situation import BOOTSTRAP_GRACE, GRACE, choose_grace
from exo.streams.ids import BootId, NodeId, SessionId


def hello(node: str, role: str = "starting", **fields: Any) -> Hello:
    position = Position(
        session=SessionId(fields.pop("session", "")),
        applied=fields.pop("applied", 0),
        lineage=tuple(map(SessionId, fields.pop("lineage", ()))),
    )
    defaults: dict[str, Any] = {"boot": BootId("b"), "name": node.upper(), "version": "1", "started_at": 0}
    return Hello(node=NodeId(node), role=role, position=position, **(defaults | fields))  # type: ignore[arg-type]


def hub(node: str, session: str = "s1", **fields: Any) -> Hello:
    serving: dict[str, Any] = {"hub": node, "hub_session": session, "hub_addresses": ("x:1",), "session": session}
    return hello(node, "hub", **(serving | {"present": 1} | fields))


def look(own: Hello, *reached: Hello, now: float = 10.0, **fields: Any) -> Decision:
    return decide(View(own=own, reached=reached, now=now, **fields))


class TestStarting:
    def test_a_serving_hub_is_followed_at_once(self) -> None:
        decision = look(hello("a"), hub("b"), hello("c"), alone_since=10.0, grace=3)
        assert isinstance(decision, Follow)
        assert decision.hub.node == "b"

    def test_of_several_hubs_the_one_that_will_stay_is_followed(self) -> None:
        decision = look(hello("a"), hub("b", present=1), hub("c", "s2", present=2))
        assert isinstance(decision, Follow)
        assert decision.hub.node == "c"

    def test_a_hub_that_has_no_session_yet_is_none(self) -> None:
        assert not isinstance(look(hello("a"), hello("b", "hub")), Follow)

    def test_it_looks_around_first(self) -> None:
        assert isinstance(look(hello("a"), alone_since=9.5, grace=1), Wait)
        assert isinstance(look(hello("a"), alone_since=8.9, grace=1), Serve)

    def test_with_nowhere_to_look_it_serves_at_once(self) -> None:
        assert isinstance(look(hello("a"), alone_since=10.0, grace=0), Serve)

    def test_the_lower_ranked_waits_for_the_first(self) -> None:
        decision = look(hello("b"), hello("a"))
        assert isinstance(decision, Wait)
        assert decision.node == "a"

    def test_a_first_that_does_not_serve_is_passed_over(self) -> None:
        assert isinstance(look(hello("b"), hello("a"), waits={NodeId("a"): 10.0 - PATIENCE}), Serve)

    def test_a_stored_session_goes_on(self) -> None:
        assert isinstance(look(hello("a", session="s1"), stored=SessionId("s1")), Resume)
        assert isinstance(look(hello("a"), stored=SessionId("s1")), Resume)

    def test_a_store_that_state_has_left_behind_does_not(self) -> None:
        assert isinstance(look(hello("a", session="s2", lineage=("s1",)), stored=SessionId("s1")), Serve)

    def test_others_that_have_a_hub_are_waited_for(self) -> None:
        decision = look(hello("a"), hello("b", "following", hub="c"))
        assert isinstance(decision, Wait)
        assert "B" in decision.why


class TestRank:
    def test_whoever_has_state_comes_first(self) -> None:
        assert [one.node for one in rank([hello("a"), hello("b", session="s1", applied=1)])] == ["b", "a"]

    def test_a_later_session_comes_before_the_one_it_continues(self) -> None:
        old = hello("a", session="s1", applied=900)
        new = hello("b", session="s2", applied=10, lineage=("s1",))
        assert rank([old, new])[0].node == "b"
        # However many have the old one.
        assert rank([old, hello("c", session="s1", applied=900), new])[0].node == "b"

    def test_then_the_session_of_most_the_highest_applied_the_longest_up_and_the_lowest_id(self) -> None:
        alone = hello("a", session="s9", applied=99)
        pair = [hello("c", session="s1", applied=1), hello("b", session="s1", applied=2)]
        assert [one.node for one in rank([alone, *pair])] == ["b", "c", "a"]
        assert rank([hello("a", started_at=5), hello("b", started_at=4)])[0].node == "b"
        assert rank([hello("b"), hello("a")])[0].node == "a"


class TestLost:
    def lose(self, *reached: Hello, since: float, **fields: Any) -> Decision:
        own = hello("b", "lost", session="s1", applied=5)
        return look(own, *reached, alone_since=10.0 - since, last_hub=NodeId("a"), **fields)

    def test_a_silent_hub_gets_its_time(self) -> None:
        assert isinstance(self.lose(since=LOST_AFTER - 0.1), Wait)
        assert isinstance(self.lose(since=LOST_AFTER + 0.1), Serve)

    def test_a_hub_that_hung_up_is_gone_once_all_have_said_so(self) -> None:
        assert isinstance(self.lose(since=SETTLE - 0.1, hub_closed=True), Wait)
        assert isinstance(self.lose(since=SETTLE + 0.1, hub_closed=True), Serve)

    def test_a_member_that_still_reaches_the_hub_is_named(self) -> None:
        decision = self.lose(hello("c", "following", hub="a"), since=60, hub_closed=True)
        assert isinstance(decision, Wait)
        assert "C" in decision.why

    def test_members_that_lost_it_too_agree(self) -> None:
        assert isinstance(self.lose(hello("c", "lost", session="s1", applied=4), since=2), Serve)
        assert isinstance(self.lose(hello("c", "lost", session="s1", applied=6), since=2), Wait)

    def test_a_hub_whose_node_lives_restarts_its_server(self) -> None:
        assert isinstance(self.lose(hub("a"), since=1), Wait)
        # After that its addresses are tried again, for it may have taken another port.
        assert isinstance(self.lose(hub("a"), since=2), Follow)

    def test_a_hub_without_a_server_is_not_replaced_while_it_says_that_it_is_one(self) -> None:
        decision = self.lose(hello("a", "hub"), since=60)
        assert isinstance(decision, Wait)
        assert "A" in decision.why

    def test_whoever_serves_by_now_is_followed(self) -> None:
        decision = self.lose(hub("c", "s2"), since=0.1, hub_closed=True)
        assert isinstance(decision, Follow)
        assert decision.hub.node == "c"

    def test_of_two_hubs_the_one_that_answers_is_followed(self) -> None:
        decision = self.lose(hub("a", present=5), hub("c", "s2"), since=3, unreached=frozenset({NodeId("a")}))
        assert isinstance(decision, Follow)
        assert decision.hub.node == "c"
        # But one that does not is better than none.
        assert isinstance(self.lose(hub("a"), since=3, unreached=frozenset({NodeId("a")})), Follow)

    def test_one_that_leaves_is_no_candidate(self) -> None:
        assert isinstance(self.lose(hello("c", "leaving", session="s1", applied=9), since=2), Serve)


class TestFollowing:
    def test_a_hub_that_is_silent_on_the_cluster_port_is_kept(self) -> None:
        assert isinstance(look(hello("b", "following", hub="a")), Keep)

    def test_a_hub_that_yielded_is_left_for_the_one_that_serves(self) -> None:
        decision = look(hello("b", "following", hub="a"), hello("a", "following", hub="c"), hub("c", "s2"))
        assert isinstance(decision, Follow)
        assert decision.hub.node == "c"

    def test_the_named_successor_serves_and_the_others_wait_for_it(self) -> None:
        leaving = hello("a", "leaving", hub="b")
        assert isinstance(look(hello("b", "following", hub="a"), leaving), Serve)
        waiting = look(hello("c", "following", hub="a"), leaving)
        assert isinstance(waiting, Wait)
        assert waiting.node == "b"

    def test_the_successor_is_the_first_of_those_who_follow(self) -> None:
        followers = [
            hello("b", "following", session="s1", applied=1),
            hello("c", "following", session="s1", applied=2),
            hello("d", "leaving", session="s1", applied=3),
        ]
        assert choose_successor(followers) == "c"
        assert choose_successor([]) == ""


class TestStopping:
    """A node that is about to stop uses the bus to the end, and becomes hub no more."""

    def test_it_is_no_successor(self) -> None:
        followers = [hello("b", "following", applied=9, stands=False), hello("c", "following", applied=1)]
        assert choose_successor(followers) == "c"
        assert choose_successor(followers[:1]) == ""

    def test_it_does_not_serve_even_when_it_was_named(self) -> None:
        own = hello("b", "following", hub="a", stands=False)
        assert isinstance(look(own, hello("a", "leaving", hub="b")), Wait)
        assert isinstance(look(own, hello("a", "leaving")), Wait)

    def test_it_does_not_serve_when_the_hub_is_gone(self) -> None:
        lost = hello("b", "lost", session="s1", applied=5, stands=False)
        assert isinstance(look(lost, alone_since=0), Wait)
        assert isinstance(look(lost, alone_since=0, stored=SessionId("s1")), Wait)
        waiting = look(lost, hello("c", "lost"), alone_since=0)
        assert isinstance(waiting, Wait)
        assert waiting.node == "c"
        assert isinstance(look(lost, hub("c", "s2"), alone_since=0), Follow)

    def test_nobody_waits_for_it(self) -> None:
        own = hello("c", "lost", session="s1", applied=1)
        assert isinstance(look(own, hello("b", "lost", session="s1", applied=9, stands=False), alone_since=0), Serve)

    def test_a_hub_keeps_its_office_until_it_leaves(self) -> None:
        assert isinstance(look(hub("a", stands=False), hello("b", "following", hub="a")), Keep)


class TestTwoHubs:
    def test_more_members_win(self) -> None:
        decision = look(hub("a", present=1), hub("b", "s2", present=2))
        assert isinstance(decision, Yield)
        assert isinstance(look(hub("b", "s2", present=2), hub("a", present=1)), Keep)

    def test_then_the_unbroken_session(self) -> None:
        branch = hub("a", "s2", lineage=("s1",), hub_since=1)
        origin = hub("b", "s1", hub_since=9)
        assert choose_hub((branch, origin)).node == "b"

    def test_then_the_older_session_and_the_lower_id(self) -> None:
        assert choose_hub((hub("a", "s1", hub_since=2), hub("b", "s2", hub_since=1))).node == "b"
        assert choose_hub((hub("b", "s2"), hub("a", "s1"))).node == "a"

    def test_a_hub_that_slept_asks_first(self) -> None:
        assert isinstance(look(hub("a"), woke_at=10.0, has_peers=True), Wait)
        assert isinstance(look(hub("a"), woke_at=10.0 - ASKING, has_peers=True), Keep)
        assert isinstance(look(hub("a"), woke_at=10.0, has_peers=False), Keep)
        assert isinstance(look(hub("a"), hub("b", "s2", present=2), woke_at=10.0, has_peers=True), Yield)


@pytest.mark.parametrize(
    ("discovery", "outcomes", "grace"),
    [
        (False, {}, 0.0),
        (True, {}, GRACE),
        (False, {"remembered": "untried"}, GRACE),
        (True, {"bootstrap": "timeout"}, BOOTSTRAP_GRACE),
        (True, {"bootstrap": "connected"}, GRACE),
    ],
)
def test_how_long_a_node_looks_around(*, discovery: bool, outcomes: dict[str, str], grace: float) -> None:
    settings = PeersSettings(
        node=NodeId("a"), boot=BootId("b"), name="a", cluster="c", version="1", discovery=discovery
    )
    attempts = tuple(
        Attempt(address="x:1", sources=(source,), outcome=outcome)  # type: ignore[arg-type]
        for source, outcome in outcomes.items()
    )
    report = PeersReport(
        port=1,
        discovery=DiscoveryState("off"),
        attempts=attempts,
        refusals=(),
        strangers=(),
        bad_addresses=(),
        counters={},
    )
    assert choose_grace(settings, report) == grace
