"""docs/subjects.md, errors.md and state.md say what the contracts say."""

import ast
import inspect
from itertools import pairwise
from types import ModuleType
from typing import Any, get_args

import pytest
from msgspec.structs import fields

from exo.gateway.errors import STATUS
from exo.streams import codes, control, layout, subjects
from exo.streams.chunks import Chunk
from exo.streams.codes import Code
from exo.streams.commands import _SUBJECT_PARTS, Command
from exo.streams.events import _MASTER_SUBJECTS, _NODE_VERBS, EpochStarted, Event
from exo.streams.state import State
from exo.streams.telemetry import Gauge
from support.doc_tables import assert_rows, code, read_rows, write_row


def first_sentence(text: str | None) -> str:
    """The part of a docstring that a table has room for."""
    assert text
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def notes_of(module: ModuleType, owner: str) -> dict[str, str]:
    """The strings below the assignments of a class, by name: what Python itself does not keep."""
    tree = ast.parse(inspect.getsource(module))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner)
    found: dict[str, str] = {}
    for statement, note in pairwise(body):
        if not (isinstance(note, ast.Expr) and isinstance(note.value, ast.Constant)):
            continue
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            found[statement.targets[0].id] = first_sentence(str(note.value.value))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found[statement.target.id] = first_sentence(str(note.value.value))
    return found


# Errors.


def test_every_error_code_is_documented_with_its_status() -> None:
    notes = notes_of(codes, "Code")
    expected = [(code(one), str(STATUS[one][0]), notes[one.name]) for one in Code]
    rows = read_rows("errors.md", "Codes")
    assert [row[:3] for row in rows] == expected, "docs/errors.md must begin its rows with:\n" + "\n".join(
        write_row(*row) for row in expected
    )
    assert [row[0] for row in rows if len(row[3]) < 10] == [], "every code has a remedy"


# Subjects.


def list_subject_builders() -> list[tuple[str, str]]:
    """(subject, meaning) of every function that spells one, from its docstring's first line."""
    builders = [
        item for _, item in inspect.getmembers(subjects, inspect.isfunction) if not item.__name__.startswith("_")
    ]
    described = [inspect.getdoc(item) or "" for item in sorted(builders, key=lambda item: item.__code__.co_firstlineno)]
    parts = [text.removeprefix("`").partition("`, ") for text in described if text.startswith("`exo.")]
    return [(subject, first_sentence(meaning)) for subject, _, meaning in parts]


def test_every_subject_is_documented() -> None:
    expected = [(code(subject), meaning) for subject, meaning in list_subject_builders()]
    assert len(expected) >= 11
    assert_rows("subjects.md", "Subjects", expected)


def show_limits(spec: layout.StreamSpec) -> str:
    full = "then refuses" if spec.discard is layout.Discard.NEW else "then drops the oldest"
    parts = [f"{spec.max_bytes // layout.MIB} MiB, {full}"]
    if spec.max_age:
        parts.append(f"{spec.max_age / 60:.0f} min")
    if spec.max_messages_per_subject:
        parts.append(f"{spec.max_messages_per_subject} per subject")
    return ", ".join(parts)


def test_every_stream_is_documented() -> None:
    expected = [
        (
            code(spec.name),
            ", ".join(code(subject) for subject in spec.subjects),
            str(spec.storage),
            show_limits(spec),
            spec.description,
        )
        for spec in layout.STREAMS
    ]
    assert_rows("subjects.md", "Streams", expected)


def test_every_bucket_is_documented() -> None:
    specs = (*layout.BUCKETS, layout.BLOBS)
    assert_rows("subjects.md", "Buckets", [(code(spec.name), str(spec.storage), spec.description) for spec in specs])


def test_every_command_is_documented() -> None:
    kinds: tuple[type[Command], ...] = get_args(Command)
    expected = [(code(_tag(kind)), code(_command_subject(kind)), first_sentence(kind.__doc__)) for kind in kinds]
    assert_rows("subjects.md", "Commands", expected)


def _command_subject(kind: type[Command]) -> str:
    aggregate, verb = _SUBJECT_PARTS[kind]
    return subjects.command(aggregate, verb)


def test_every_event_is_documented() -> None:
    kinds: tuple[type[Event], ...] = get_args(Event)
    expected = [(code(_tag(kind)), code(_event_subject(kind)), first_sentence(kind.__doc__)) for kind in kinds]
    assert_rows("subjects.md", "Events", expected)


def _event_subject(kind: type[Any]) -> str:
    if kind is EpochStarted:
        return subjects.EPOCH
    if kind in _NODE_VERBS:
        return f"exo.events.node.<node>.{_NODE_VERBS[kind]}"
    aggregate, verb = _MASTER_SUBJECTS[kind]
    return f"exo.events.master.{aggregate}.<id>.{verb}"


@pytest.mark.parametrize(("heading", "union"), [("Chunks", Chunk), ("Gauges", Gauge)])
def test_every_chunk_and_gauge_is_documented(heading: str, union: Any) -> None:
    expected = [
        (code(_tag(kind)), code(", ".join(field.encode_name for field in fields(kind))), first_sentence(kind.__doc__))
        for kind in get_args(union)
    ]
    assert_rows("subjects.md", heading, expected)


def test_every_control_verb_is_documented() -> None:
    verbs = [value for name, value in vars(control).items() if name.isupper() and isinstance(value, str)]
    assert [row[0] for row in read_rows("subjects.md", "Control")] == [code(verb) for verb in verbs]


def _tag(kind: type[Any]) -> str:
    return str(kind.__struct_config__.tag)


# State.


def test_every_key_of_state_is_documented() -> None:
    keys = [code(field.encode_name) for field in fields(State)]
    rows = read_rows("state.md", "Keys")
    assert [row[0] for row in rows] == keys
    assert [row[0] for row in rows if len(row[2]) < 10] == []


# The comparisons themselves.


def test_a_missing_row_is_noticed() -> None:
    rows = read_rows("subjects.md", "Buckets")
    with pytest.raises(AssertionError, match="lacks"):
        assert_rows("subjects.md", "Buckets", [*rows, ("`new`", "file", "something")])
    with pytest.raises(AssertionError, match="does not"):
        assert_rows("subjects.md", "Buckets", rows[:-1])
