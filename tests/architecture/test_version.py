"""The version is written in pyproject.toml and nowhere else; everything that shows it asks the installed metadata."""

import json
import tomllib
from importlib.metadata import version

from support.tracked import ROOT, list_sources, name_of

VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_the_installed_distribution_has_the_version_of_the_tree() -> None:
    assert version("exo") == VERSION, "run `make setup`"


def test_no_source_spells_the_version() -> None:
    ours = [file for file in list_sources(".py") if file.relative_to(ROOT).parts[1] == "exo"]
    assert ours
    assert [name_of(file) for file in ours if f'"{VERSION}"' in file.read_text()] == []


def test_the_dashboard_has_no_version_of_its_own() -> None:
    package = json.loads((ROOT / "dashboard" / "web" / "package.json").read_text())
    assert "version" not in package


def test_the_changelog_knows_the_version_or_has_it_coming() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## [{VERSION}]" in changelog or "## [Unreleased]" in changelog
