"""The shape of the tree: source roots stay PEP 420, files stay small, names stay unique."""

import re
import tomllib
from collections import Counter
from pathlib import Path

from support.tracked import ROOT, SOURCE_ROOTS, list_sources, name_of

MOST_LINES = 500
# Written by a program; nobody reads them from top to bottom.
GENERATED = {"dashboard/web/src/api/types.gen.ts"}


def test_no_source_root_claims_the_namespace() -> None:
    assert [root for root in SOURCE_ROOTS if (ROOT / root / "exo" / "__init__.py").exists()] == []


def test_every_list_of_source_roots_is_the_same() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    on_disk = sorted(folder.parent.name for folder in ROOT.glob("[a-z]*/exo"))
    assert on_disk == sorted(SOURCE_ROOTS)
    assert sorted(tool["hatch"]["build"]["dev-mode-dirs"]) == on_disk
    assert sorted(tool["hatch"]["build"]["targets"]["wheel"]["packages"]) == [f"{root}/exo" for root in on_disk]
    assert sorted(tool["importlinter"]["root_packages"]) == [f"exo.{root}" for root in on_disk]
    layers = re.findall(r"exo\.\w+", " ".join(tool["importlinter"]["contracts"][0]["layers"]))
    assert sorted(layers) == sorted(tool["importlinter"]["root_packages"])


def test_every_package_says_what_it_is() -> None:
    inits = [file for file in list_sources(".py") if file.name == "__init__.py"]
    assert len(inits) >= len(SOURCE_ROOTS)
    assert [name_of(file) for file in inits if not file.read_text().startswith('"""')] == []


def test_no_file_is_over_budget() -> None:
    counted = {name_of(file): count_lines(file) for file in list_sources(".py", ".ts", ".svelte")}
    over = {name: lines for name, lines in counted.items() if lines > MOST_LINES and name not in GENERATED}
    assert over == {}


def test_test_files_need_no_package() -> None:
    tests = [file for file in list_sources(".py") if file.is_relative_to(ROOT / "tests")]
    assert [name_of(file) for file in tests if file.name == "__init__.py"] == []


def test_test_files_have_names_of_their_own() -> None:
    counted = Counter(file.name for file in list_sources(".py") if file.name.startswith("test_"))
    assert {name for name, count in counted.items() if count > 1} == set()


def count_lines(file: Path) -> int:
    return len(file.read_text().splitlines())
