"""Laws of `apply`: total, pure, deterministic, replayable from any snapshot, and first ending wins."""

from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from exo.streams import apply as apply_module
from exo.streams import codec, events, snapshot
from exo.streams.apply import apply
from exo.streams.events import Envelope, Recorded, UnknownEvent
from exo.streams.state import KEPT_REMOVED_INSTANCES, State
from support.messages import strategy


def logs() -> st.SearchStrategy[list[Recorded]]:
    """Draw logs of any events, known and unknown; ids are short, so that events often meet."""

    def number(entries: list[Envelope | None]) -> list[Recorded]:
        return [
            Recorded(place, entry) if entry is not None else Recorded(place, None, UnknownEvent(type="new"))
            for place, entry in enumerate(entries, start=1)
        ]

    entry: st.SearchStrategy[Any] = st.one_of(st.none(), strategy(Envelope))
    return st.lists(entry, max_size=20).map(number)


def fold(state: State, log: list[Recorded]) -> State:
    for recorded in log:
        state = apply(state, recorded)
    return state


@given(log=logs())
def test_apply_never_raises_and_counts_every_event(log: list[Recorded]) -> None:
    assert fold(State(), log).applied == len(log)


@given(log=logs())
def test_apply_is_deterministic_and_changes_nothing_in_place(log: list[Recorded]) -> None:
    before = State()
    untouched = codec.encode(before)
    assert codec.hash_state(fold(before, log)) == codec.hash_state(fold(State(), log))
    assert codec.encode(before) == untouched


@given(log=logs(), cut=st.integers(0, 20))
def test_replay_from_a_snapshot_equals_replay_from_the_beginning(log: list[Recorded], cut: int) -> None:
    stored = snapshot.encode_snapshot(snapshot.take_snapshot(fold(State(), log[:cut])))
    loaded = snapshot.decode_snapshot(stored)
    assert loaded is not None
    assert fold(loaded.state, log[cut:]) == fold(State(), log)


@given(log=logs())
def test_runners_belong_to_placed_instances(log: list[Recorded]) -> None:
    state = fold(State(), log)
    shards = {shard.runner for instance in state.instances.values() for shard in instance.shards}
    assert {runner.instance for runner in state.runners.values()} <= set(state.instances)
    assert set(state.runners) <= shards


@given(log=logs())
def test_a_task_is_at_work_or_ended_but_its_first_ending_stays(log: list[Recorded]) -> None:
    state = State()
    endings: dict[str, Any] = {}
    for recorded in log:
        state = apply(state, recorded)
        for task, ended in state.ended_tasks.items():
            assert endings.setdefault(task, ended) == ended


@given(log=logs())
def test_kept_history_is_bounded(log: list[Recorded]) -> None:
    state = fold(State(), log * 8)
    assert len(state.removed_instances) <= KEPT_REMOVED_INSTANCES


def test_every_event_type_has_a_fold() -> None:
    assert set(apply_module._FOLDS) == set(get_args(events.Event))


@given(damage=st.integers(0, 400), byte=st.integers(0, 255))
def test_a_damaged_snapshot_is_refused(damage: int, byte: int) -> None:
    stored = bytearray(snapshot.encode_snapshot(snapshot.take_snapshot(State(epoch=3))))
    place = damage % len(stored)
    if stored[place] == byte:
        return
    stored[place] = byte
    loaded = snapshot.decode_snapshot(bytes(stored))
    assert loaded is None or loaded.state == State(epoch=3)
