"""Who waits, who runs, who must go."""

import threading

from exo.runners.admission import Admission, Breach, Stage, Ticket
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.pipe import Cancel
from support.requests import ask, generate, prompt

NOW = 1000.0


def _enter(admission: Admission, task: str, *, priority: int = 0, time_limit: int = 0) -> Ticket:
    ticket = admission.enter(generate(task, ask("hi"), priority=priority, time_limit=time_limit))
    assert isinstance(ticket, Ticket)
    return ticket


def _wait(admission: Admission, task: str, *, priority: int = 0, time_limit: int = 0) -> Ticket:
    ticket = _enter(admission, task, priority=priority, time_limit=time_limit)
    admission.queue(ticket, prompt())
    return ticket


def _admitted(admission: Admission) -> list[str]:
    return [ticket.task for ticket in admission.plan(now=NOW).admits]


def test_slots_are_given_in_order_of_arrival() -> None:
    admission = Admission(max_batch=2, max_queue=8)
    tickets = [_wait(admission, task) for task in "abc"]
    assert _admitted(admission) == ["a", "b"]
    assert (admission.running, admission.queued) == (2, 1)
    admission.leave(tickets[0])
    assert _admitted(admission) == ["c"]


def test_arrival_counts_and_not_who_was_rendered_first() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    first, second = _enter(admission, "first"), _enter(admission, "second")
    admission.queue(second, prompt())
    admission.queue(first, prompt())
    assert _admitted(admission) == ["first"]


def test_a_higher_priority_goes_first() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    for task, priority in (("low", -1), ("a", 0), ("high", 5), ("b", 0)):
        _wait(admission, task, priority=priority)
    order: list[str] = []
    while plan := admission.plan(now=NOW).admits:
        order += [ticket.task for ticket in plan]
        admission.leave(plan[0])
    assert order == ["high", "a", "b", "low"]


def test_a_full_queue_refuses() -> None:
    admission = Admission(max_batch=1, max_queue=1)
    first = _enter(admission, "a")
    _enter(admission, "b")
    refusal = admission.enter(generate("c", ask("hi")))
    assert isinstance(refusal, Breach)
    assert refusal.code == Code.OVERLOADED
    admission.leave(first)
    assert isinstance(admission.enter(generate("c", ask("hi"))), Ticket)


def test_the_position_counts_who_must_end_first() -> None:
    admission = Admission(max_batch=2, max_queue=8)
    _wait(admission, "a")
    admission.plan(now=NOW)
    assert admission.find_position(_enter(admission, "b")) == 0
    _wait(admission, "c")
    waiting = _enter(admission, "d")
    assert admission.find_position(waiting) == 1
    assert admission.find_position(_enter(admission, "e", priority=1)) == 0


def test_a_cancelled_request_is_dropped_wherever_it_is() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    running, waiting = _wait(admission, "running"), _wait(admission, "waiting")
    admission.plan(now=NOW)
    for ticket in (running, waiting):
        admission.cancel(Cancel(task=ticket.task, code="instance_removed", message="gone"))
    plan = admission.plan(now=NOW)
    assert plan.drops == [running, waiting]
    assert plan.admits == []
    assert running.breach == Breach("instance_removed", "gone")
    assert (admission.running, admission.queued) == (0, 0)


def test_a_request_cancelled_while_it_is_rendered_shows_its_breach() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    ticket = _enter(admission, "a")
    admission.cancel(Cancel(task=ticket.task))
    assert ticket.breach is not None
    assert admission.plan(now=NOW).drops == []


def test_a_request_cancelled_between_its_first_chunk_and_the_queue_is_dropped() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    ticket = _enter(admission, "a")
    admission.cancel(Cancel(task=ticket.task))
    admission.queue(ticket, prompt())
    plan = admission.plan(now=NOW)
    assert (plan.drops, plan.admits) == ([ticket], [])


def test_a_cancel_that_comes_first_refuses_its_request_once() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    admission.cancel(Cancel(task=TaskId("a")))
    refusal = admission.enter(generate("a", ask("hi")))
    assert isinstance(refusal, Breach)
    assert refusal.code == Code.CANCELLED
    assert isinstance(admission.enter(generate("a", ask("hi"))), Ticket)


def test_a_request_that_ended_by_itself_is_not_dropped_as_well() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    ticket = _wait(admission, "a")
    admission.plan(now=NOW)
    admission.cancel(Cancel(task=ticket.task))
    admission.leave(ticket)
    assert admission.plan(now=NOW).drops == []
    assert admission.running == 0


def test_overdue_requests_are_dropped() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    running = _wait(admission, "a", time_limit=60_000)
    waiting = _wait(admission, "b", time_limit=62_000)
    admission.plan(now=running.arrived + 59)
    assert running.stage is Stage.RUNNING
    plan = admission.plan(now=running.arrived + 61)
    assert (plan.drops, plan.admits) == ([running], [waiting])
    assert running.breach is not None
    assert running.breach.code == Code.DEADLINE_EXCEEDED


def test_a_closed_door_refuses_and_drains() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    ticket = _wait(admission, "a")
    closed = Breach(Code.INSTANCE_REMOVED, "stopping")
    admission.close(closed)
    assert admission.enter(generate("b", ask("hi"))) == closed
    assert admission.wait_for_work()
    admission.leave(ticket)
    assert not admission.wait_for_work()


def test_waiting_ends_when_a_request_is_queued() -> None:
    admission = Admission(max_batch=1, max_queue=8)
    woken = threading.Event()

    def wait() -> None:
        admission.wait_for_work()
        woken.set()

    thread = threading.Thread(target=wait)
    thread.start()
    ticket = _enter(admission, "a")
    assert not woken.is_set()
    admission.queue(ticket, prompt())
    assert woken.wait(5)
    thread.join()
