from exo.broker.address_book import LONGEST_PAUSE, MOST_AT_ONCE, MOST_ENTRIES, RARE_PAUSE, REFUSED, AddressBook
from exo.broker.addresses import Address
from exo.broker.peering import Attempt
from exo.streams.ids import NodeId

HERE, THERE = Address("10.0.0.1", 1), Address("10.0.0.2", 1)
A, B = NodeId("a"), NodeId("b")


def make_book() -> AddressBook:
    return AddressBook(draw=lambda limit: limit)


def fail(book: AddressBook, address: Address, *, now: float, outcome: str = "timeout") -> float:
    """Fail once; gives when the address is due again."""
    assert book.take_due(now, connected=()) == [address]
    book.fail(address, outcome, "", at=1)
    book.rest(address, now=now)
    due = book.find_next(connected=())
    assert due is not None
    return due


def test_an_address_is_dialled_once_and_then_waits_for_its_end() -> None:
    book = make_book()
    assert book.suggest(HERE, source="bootstrap")
    assert not book.suggest(HERE, source="zeroconf")
    assert book.take_due(0, connected=()) == [HERE]
    assert book.take_due(0, connected=()) == []
    assert book.find_next(connected=()) is None
    assert book.report(reached=())[0].sources == ("bootstrap", "zeroconf")


def test_pauses_double_up_to_the_longest_and_never_end() -> None:
    book = make_book()
    book.suggest(HERE, source="bootstrap")
    now, pauses = 0.0, list[float]()
    for _ in range(200):
        due = fail(book, HERE, now=now)
        pauses.append(round(due - now, 3))
        now = due
    assert pauses[:4] == [0.4, 0.8, 1.6, 3.2]
    assert pauses[-1] == LONGEST_PAUSE


def test_what_nobody_asked_for_is_tried_rarely_after_many_failures() -> None:
    book = make_book()
    book.suggest(HERE, source="member")
    now = 0.0
    for _ in range(100):
        now = fail(book, HERE, now=now)
    assert fail(book, HERE, now=now) - now == RARE_PAUSE


def test_our_own_address_is_tried_rarely() -> None:
    book = make_book()
    book.suggest(HERE, source="bootstrap")
    assert fail(book, HERE, now=0, outcome="same_node") == RARE_PAUSE


def test_the_addresses_of_a_connected_node_rest_until_it_is_lost() -> None:
    book = make_book()
    book.suggest(HERE, source="member", node=A)
    fail(book, HERE, now=0)
    assert book.take_due(100, connected={A}) == []
    book.hurry(A)
    assert book.take_due(0, connected=()) == [HERE]


def test_who_answered_is_worth_more_than_who_is_said_to_be_there() -> None:
    book = make_book()
    book.suggest(HERE, source="member", node=A)
    book.suggest(HERE, source="greeting", node=B)
    assert book.report(reached=())[0].node == B
    book.take_due(0, connected=())
    book.meet(HERE, node=A, at=1)
    book.suggest(HERE, source="greeting", node=B)
    assert book.report(reached=())[0].node == A


def test_the_reason_of_a_failure_is_news_once() -> None:
    book = make_book()
    book.suggest(HERE, source="bootstrap")
    assert book.fail(HERE, "timeout", "no answer", at=5)
    assert not book.fail(HERE, "timeout", "no answer", at=6)
    assert book.report(reached=()) == (
        Attempt(
            address="10.0.0.1:1", sources=("bootstrap",), outcome="timeout", detail="no answer", failures=2, tried_at=6
        ),
    )


def test_a_full_book_forgets_what_failed_most_but_never_what_a_person_named() -> None:
    book = make_book()
    book.suggest(HERE, source="bootstrap")
    book.suggest(THERE, source="member")
    for _ in range(5):
        book.fail(HERE, "timeout", "", at=1)
    for number in range(MOST_ENTRIES - 2):
        book.suggest(Address("10.1.0.1", number + 1), source="member")
    assert not book.suggest(Address("10.2.0.1", 1), source="member"), "nothing has failed that may go"
    book.fail(THERE, "timeout", "", at=1)
    assert book.suggest(Address("10.2.0.1", 1), source="member")
    addresses = [attempt.address for attempt in book.report(reached=())]
    assert str(HERE) in addresses
    assert str(THERE) not in addresses


def test_only_so_many_are_dialled_at_once() -> None:
    book = make_book()
    for number in range(MOST_AT_ONCE + 9):
        book.suggest(Address("10.1.0.1", number + 1), source="member")
    assert len(book.take_due(0, connected=())) == MOST_AT_ONCE
    assert book.take_due(0, connected=()) == []


def test_a_refusal_counts_where_the_member_answered_and_after_it_was_heard() -> None:
    book = make_book()
    book.suggest(HERE, source="member", node=A)
    due = fail(book, HERE, now=1, outcome=REFUSED)
    # Nobody was ever met there, and it may be anybody's.
    assert book.find_refusal(str(HERE), after=0, is_own=False) is None
    assert book.find_refusal(str(HERE), after=0, is_own=True) == 1
    assert book.find_refusal(str(HERE), after=1, is_own=True) is None

    assert book.take_due(due, connected=()) == [HERE]
    book.meet(HERE, node=A, at=1)
    book.rest(HERE, now=10)
    assert book.find_refusal(str(HERE), after=0, is_own=True) is None
    due = fail(book, HERE, now=11, outcome=REFUSED)
    fail(book, HERE, now=due, outcome=REFUSED)
    assert book.find_refusal(str(HERE), after=10, is_own=False) == 11
    # Silence ends the proof.
    fail(book, HERE, now=100, outcome="timeout")
    assert book.find_refusal(str(HERE), after=10, is_own=False) is None


def test_who_answers_and_then_turns_us_away_is_tried_with_growing_pauses() -> None:
    book = make_book()
    book.suggest(HERE, source="zeroconf")
    now, pauses = 0.0, list[float]()
    for _ in range(12):
        assert book.take_due(now, connected=()) == [HERE]
        book.meet(HERE, node=A, at=1)
        book.fail(HERE, "duplicate_node", "", at=1)
        book.rest(HERE, now=now)
        due = book.find_next(connected=())
        assert due is not None
        pauses.append(due - now)
        now = due
    assert pauses[-1] == LONGEST_PAUSE
    book.settle(A)
    assert book.report(reached=())[0].failures == 0


def test_no_address_of_a_node_that_is_reached_has_failed() -> None:
    book = make_book()
    book.suggest(HERE, source="bootstrap", node=A)
    book.suggest(THERE, source="bootstrap", node=B)
    for address in (HERE, THERE):
        book.fail(address, "timeout", "no answer", at=1)
    reached, other = book.report(reached={A})
    assert (reached.outcome, reached.detail, reached.failures) == ("connected", "", 0)
    assert (other.outcome, other.failures) == ("timeout", 1)
