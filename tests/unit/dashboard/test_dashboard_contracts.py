"""What the page spells by hand because the OpenAPI document leaves it open must be what `exo.streams` says."""

import re
from types import UnionType
from typing import get_args

import msgspec

from exo.streams.events import Event
from exo.streams.state import State
from exo.streams.telemetry import Gauge
from support.tracked import ROOT

SOURCE = ROOT / "dashboard" / "web" / "src"


def fields_by_tag(union: UnionType) -> dict[str, set[str]]:
    members = [msgspec.inspect.type_info(member) for member in get_args(union)]
    structs = [member for member in members if isinstance(member, msgspec.inspect.StructType)]
    return {str(struct.tag): {field.encode_name for field in struct.fields} for struct in structs}


def test_gauges_have_the_fields_that_the_page_reads() -> None:
    text = (SOURCE / "api" / "types.ts").read_text()
    declared = text.partition("export type Gauge =")[2].partition("/**")[0]
    shown = {
        tag: set(re.findall(r"(\w+): ", rest)) for tag, rest in re.findall(r'\{ type: "(\w+)";([^}]*)\}', declared)
    }
    known = fields_by_tag(Gauge)
    assert shown
    assert shown.keys() <= known.keys()
    assert {tag: fields - known[tag] for tag, fields in shown.items() if fields - known[tag]} == {}


def test_the_table_of_events_names_real_events_and_real_parts_of_state() -> None:
    text = (SOURCE / "lib" / "parts.ts").read_text()
    parts = set(re.findall(r'"(\w+)"', text.partition("STATE_PARTS = [")[2].partition("]")[0]))
    assert parts
    assert parts <= set(State.__struct_fields__)
    events = set(re.findall(r'\["(\w+)", ', text.partition("CHANGED_BY")[2]))
    assert events
    assert events <= fields_by_tag(Event).keys()
