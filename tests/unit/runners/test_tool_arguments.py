"""The scanner passes on JSON objects and nothing else."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exo.runners.text.parse.arguments import ObjectScanner

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def _scan(text: str) -> tuple[str, str]:
    scanner = ObjectScanner()
    taken = ""
    for position, character in enumerate(text):
        valid, rest = scanner.feed(character)
        taken += valid
        if rest:
            return taken, rest + text[position + 1 :]
    assert scanner.is_complete
    return taken, ""


@settings(max_examples=40)
@given(st.dictionaries(st.text(), _JSON, max_size=4), st.booleans(), st.sampled_from([None, 2]))
def test_every_json_object_passes_unchanged(value: dict[str, object], ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert _scan(text) == (text, "")


def test_what_comes_after_the_object_is_given_back() -> None:
    assert ObjectScanner().feed('{"a": "}"}}\n') == ('{"a": "}"}', "}\n")


def test_raw_line_breaks_in_strings_are_escaped() -> None:
    taken, _ = _scan('{"code": "a\n\tb\x01"}')
    assert json.loads(taken) == {"code": "a\n\tb\x01"}


def test_members_are_counted_at_the_outermost_level() -> None:
    scanner = ObjectScanner()
    scanner.feed('{"a": {"b": 1, "c": 2}, "d": ')
    assert scanner.members == 2


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        "1",
        "{a: 1}",
        "{'a': 1}",
        '{"a" 1}',
        '{"a": 1,}',
        '{"a": [1,]}',
        '{"a": tru}',
        '{"a": 01}',
        '{"a": -}',
        '{"a": .5}',
        '{"a": 1.}',
        '{"a": NaN}',
        '{"a": 1]',
        '{"a": "\\x"}',
        '{"a": "\\u00g0"}',
        '{"a": {"b": 1}',
        '{"a": 1 "b": 2}',
        "{,}",
    ],
)
def test_what_is_no_json_is_not_passed(text: str) -> None:
    scanner = ObjectScanner()
    scanner.feed(text)
    assert not scanner.is_complete


def test_what_was_valid_before_a_wrong_character_is_given() -> None:
    scanner = ObjectScanner()
    assert scanner.feed('{"a": 1, oops}') == ('{"a": 1, ', "oops}")
    assert scanner.is_broken
    assert scanner.feed("more") == ("", "more")
