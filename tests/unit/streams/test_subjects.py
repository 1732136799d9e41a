"""Subjects: spelled once, safe in every part."""

import fnmatch

import pytest

from exo.streams import commands, events, layout, subjects
from exo.streams.ids import CommandId, NodeId, TaskId, task_of_public_id


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*", ">", "Org/Model", "x" * 65, "ä"])
def test_a_part_that_is_no_token_is_refused(bad: str) -> None:
    with pytest.raises(subjects.InvalidSubjectTokenError):
        subjects.tokens(NodeId(bad), TaskId("t"))


def test_parts_can_be_read_back() -> None:
    assert subjects.node_and_gauge(subjects.telemetry(NodeId("n"), "memory")) == ("n", "memory")


def test_every_stream_takes_its_own_plane_only() -> None:
    spaces = [space.removesuffix(">") for spec in layout.STREAMS for space in spec.subjects]
    assert len(spaces) == len(set(spaces))
    assert not [1 for one in spaces for other in spaces if one != other and one.startswith(other)]


def test_written_subjects_lie_in_their_streams() -> None:
    command = commands.CancelTask(command_id=CommandId("c"), issued_at=1, task=TaskId("t"))
    event = events.TaskCancelled(task=TaskId("t"), reason="r")
    assert fnmatch.fnmatch(commands.subject_of_command(command), subjects.COMMANDS.replace(">", "*"))
    assert events.subject_of_event(event) == "exo.events.master.task.t.cancelled"
    assert subjects.poison(layout.EVENTS.name) == "exo.poison.exo-events"


@pytest.mark.parametrize("public", ["chatcmpl-abc1", "msg_abc1", "resp_abc1", "cmpl-abc1", "abc1"])
def test_every_dialects_id_leads_to_the_task(public: str) -> None:
    assert task_of_public_id(public) == "abc1"


def test_a_foreign_id_leads_nowhere() -> None:
    assert task_of_public_id("../etc/passwd") is None
