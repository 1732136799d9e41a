"""Build messages from their types: one fixed sample of each, or hypothesis strategies."""

import string
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st
from msgspec import inspect as types

from exo.streams import (
    chunks,
    commands,
    control,
    events,
    instances,
    pages,
    pipe,
    placements,
    requests,
    snapshot,
    telemetry,
)
from exo.streams.state import State

UNIONS: dict[str, Any] = {
    "command": commands.Command,
    "event": events.Event,
    "chunk": chunks.Chunk,
    "gauge": telemetry.Gauge,
    "to_runner": pipe.ToRunner,
    "from_runner": pipe.FromRunner,
    "runner_status": instances.RunnerStatus,
}
SINGLES: tuple[type[msgspec.Struct], ...] = (
    events.Envelope,
    requests.StoredRequest,
    telemetry.Sample,
    control.ImportModel,
    control.RemoveModel,
    control.ModelReply,
    control.CountTokensOf,
    control.CountReply,
    placements.Preview,
    snapshot.Snapshot,
)


def message_types() -> dict[str, type[msgspec.Struct]]:
    """Give every message type of the wire by the name of its golden file."""
    members = {f"{union}.{member.__name__}": member for union, kind in UNIONS.items() for member in get_args(kind)}
    return members | {f"message.{single.__name__}": single for single in SINGLES}


def sample(kind: Any) -> Any:
    """Build the same fully filled instance each time."""
    return _sample(types.type_info(kind))


def _sample(info: types.Type) -> Any:  # noqa: C901, PLR0911, PLR0912 - one line per kind of type
    match info:
        case types.StructType(cls=cls, fields=fields):
            if cls is State:
                return State()
            if issubclass(cls, pages.Pages):
                return cls(limit=64)
            return cls(**{field.name: _sample(field.type) for field in fields})
        case types.StrType():
            return "text"
        case types.BoolType():
            return True
        case types.IntType():
            return 7
        case types.FloatType():
            return 0.5
        case types.LiteralType(values=values):
            return values[-1]
        case types.VarTupleType(item_type=item):
            return (_sample(item),)
        case types.TupleType(item_types=items):
            return tuple(_sample(item) for item in items)
        case types.DictType(key_type=key, value_type=value):
            return {_sample(key): _sample(value)}
        case types.UnionType(types=members):
            return _sample(next(member for member in members if not isinstance(member, types.NoneType)))
        case types.AnyType():
            return "anything"
        case _:
            raise TypeError(info)


IDENTIFIERS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=4)


def strategy(kind: Any) -> st.SearchStrategy[Any]:
    """Give a strategy that draws any instance of a message type."""
    return _strategy(types.type_info(kind))


def _strategy(info: types.Type) -> st.SearchStrategy[Any]:  # noqa: C901, PLR0911, PLR0912 - see _sample
    match info:
        case types.StructType(cls=cls, fields=fields):
            if cls is State:
                return st.builds(State)
            return st.builds(cls, **{field.name: _strategy(field.type) for field in fields})
        case types.StrType():
            return IDENTIFIERS
        case types.BoolType():
            return st.booleans()
        case types.IntType():
            return st.integers(min_value=-(2**53), max_value=2**53)
        case types.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False, width=32)
        case types.LiteralType(values=values):
            return st.sampled_from(values)
        case types.VarTupleType(item_type=item):
            return st.lists(_strategy(item), max_size=3).map(tuple)
        case types.TupleType(item_types=items):
            return st.tuples(*(_strategy(item) for item in items))
        case types.DictType(key_type=key, value_type=value):
            return st.dictionaries(_strategy(key), _strategy(value), max_size=3)
        case types.UnionType(types=members):
            return st.one_of(*(_strategy(member) for member in members))
        case types.NoneType():
            return st.none()
        case types.AnyType():
            return st.text(max_size=5)
        case _:
            raise TypeError(info)
