"""Tables of the documentation, read back so that tests can compare them with the code."""

import re

from support.tracked import ROOT

_RULE = re.compile(r"^\|[-| :]+\|$")
_CELL = re.compile(r"(?<!\\)\|")


def read_rows(page: str, heading: str) -> list[tuple[str, ...]]:
    """The rows of the one table below a heading of `docs/<page>`, without its header; cells as they are written."""
    text = (ROOT / "docs" / page).read_text()
    _, found, section = text.partition(f"\n## {heading}\n")
    assert found, f"docs/{page} has no section `{heading}`"
    section = section.partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    assert _RULE.match(lines[1]), f"docs/{page}, `{heading}`: no table"
    return [_split(line) for line in lines[2:]]


def _split(line: str) -> tuple[str, ...]:
    return tuple(cell.strip().replace("\\|", "|") for cell in _CELL.split(line)[1:-1])


def write_row(*cells: str) -> str:
    """A row as it must stand in the page, for the message of a failed test."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def code(text: str) -> str:
    """A word in the page's code style; an empty one is a dash."""
    return f"`{text}`" if text else "-"


def assert_rows(page: str, heading: str, expected: list[tuple[str, ...]]) -> None:
    """Compare a table with what the code says, row by row and in order."""
    rows = read_rows(page, heading)
    missing = [write_row(*row) for row in expected if row not in rows]
    surplus = [write_row(*row) for row in rows if row not in expected]
    assert not missing, f"docs/{page}, `{heading}` lacks:\n" + "\n".join(missing)
    assert not surplus, f"docs/{page}, `{heading}` has what the code does not:\n" + "\n".join(surplus)
    assert rows == expected, f"docs/{page}, `{heading}`: the order differs from the code's"
