"""docs/settings.md and docs/upstream-flags.md say what the code does."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import fields

from exo.ops.layers import BUILD_VARIABLES, CLIENT_VARIABLES
from exo.ops.settings import Settings, describe_settings
from exo.ops.upstream import FLAGS, VARIABLES, Fate, Ignored, Kept, Refused, Renamed
from support.doc_tables import assert_rows, code, read_rows
from support.tracked import ROOT


def show_default(name: str) -> str:
    field = next(field for field in fields(Settings) if field.name == name)
    if name in {"name", "namespace"}:
        return {"name": "the host's name", "namespace": "the version"}[name]
    if field.default_factory is not msgspec.NODEFAULT:
        return "empty"
    value: Any = field.default
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return code(str(value).lower())
    return code(str(value)) if value not in ("", ()) else "empty"


def test_every_setting_is_documented_as_it_is() -> None:
    expected = [
        (code(about.name), code(about.variable), code(about.flag), show_default(name), about.description)
        for name, about in describe_settings().items()
    ]
    assert_rows("settings.md", "All settings", expected)


def test_the_other_variables_are_documented() -> None:
    names = [row[0] for row in read_rows("settings.md", "Other variables")]
    assert {code(name) for name in (*CLIENT_VARIABLES, *BUILD_VARIABLES)} <= set(names)


def test_the_example_file_is_valid(tmp_path: Path) -> None:
    from exo.ops.layers import load_settings

    text = (ROOT / "docs" / "settings.md").read_text()
    example = text.partition("```toml\n")[2].partition("```")[0]
    (tmp_path / "config.toml").write_text(example)
    loaded = load_settings({"data_dir": tmp_path}, dict(os.environ))
    assert len(loaded.origins) > 3


def show_fate(fate: Fate) -> str:
    match fate:
        case Kept():
            return "the same"
        case Renamed(ours=ours, value=""):
            return f"read as {code(ours)}"
        case Renamed(ours=ours, value=value):
            return f"read as {code(f'{ours}={value}')}"
        case Refused(why=why):
            return f"refused: {why}"
        case Ignored(reader=reader):
            return f"not exo's: read by {reader}"


@pytest.mark.parametrize(("heading", "table"), [("Flags", FLAGS), ("Environment variables", VARIABLES)])
def test_every_upstream_name_is_documented_with_its_fate(heading: str, table: dict[str, Fate]) -> None:
    assert_rows("upstream-flags.md", heading, [(code(name), show_fate(fate)) for name, fate in table.items()])


def test_names_that_are_kept_or_translated_exist() -> None:
    variables = {about.variable for about in describe_settings().values()}
    kept = {name for name, fate in VARIABLES.items() if isinstance(fate, Kept)}
    ours = {fate.ours for fate in VARIABLES.values() if isinstance(fate, Renamed)}
    assert kept | ours <= variables
