"""The locks: whole, without addresses, and in step with pyproject.toml."""

import re
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.tracked import ROOT

LOCKS = ("run", "dev", "build", "node", "uv")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS: dict[str, list[str | dict[str, str]]] = PROJECT["dependency-groups"]


def read_lock(name: str) -> str:
    return (ROOT / "requirements" / f"{name}.txt").read_text()


def read_pins(name: str) -> set[tuple[str, str, str]]:
    """Each pinned package with its version and marker; a package may stand twice, for different markers."""
    lines = [line.removesuffix(" \\") for line in read_lock(name).splitlines() if "==" in line and "--hash" not in line]
    parsed = [Requirement(line) for line in lines]
    return {(canonicalize_name(one.name), str(one.specifier), str(one.marker)) for one in parsed}


def expand(group: str) -> list[str]:
    """The requirements of a group, with those of the groups it includes."""
    found: list[str] = []
    for entry in GROUPS[group]:
        found += [entry] if isinstance(entry, str) else expand(entry["include-group"])
    return found


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_versions_and_hashes_and_no_address(name: str) -> None:
    text = read_lock(name)
    assert read_pins(name)
    assert "://" not in text
    assert not re.search(r"^(-|\S+ @ )", text, re.MULTILINE)
    starts = [block for block in re.split(r"\n(?=[a-z0-9])", text) if "==" in block]
    assert [block.split()[0] for block in starts if "--hash=sha256:" not in block] == []


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("run", ["backend"]),
        ("dev", ["backend", "dev", "build"]),
        ("build", ["build"]),
        ("node", ["node"]),
        ("uv", ["uv"]),
    ],
)
def test_a_lock_satisfies_every_requirement(name: str, groups: list[str]) -> None:
    wanted = [one for group in groups for one in expand(group)]
    if name in {"run", "dev"}:
        wanted += PROJECT["project"]["dependencies"]
    pins: dict[str, set[str]] = {}
    for package, version, _ in read_pins(name):
        pins.setdefault(package, set()).add(version.removeprefix("=="))
    for requirement in map(Requirement, wanted):
        versions = pins.get(canonicalize_name(requirement.name), set())
        assert versions, f"{requirement} is not in requirements/{name}.txt: run `make lock`"
        assert all(requirement.specifier.contains(version) for version in versions), f"{requirement}: run `make lock`"


def test_tests_and_linters_move_no_version_of_the_running_program() -> None:
    assert read_pins("run") <= read_pins("dev")


def test_exo_itself_is_in_no_lock() -> None:
    # The index has an unrelated package of this name; a self-reference in pyproject.toml would fetch it.
    assert [name for name in LOCKS if "exo" in {package for package, _, _ in read_pins(name)}] == []


def test_the_backend_group_and_the_extras_agree() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    by_hand = {(one.name, str(one.specifier)) for extra in extras.values() for one in map(Requirement, extra)}
    by_platform = {(one.name, str(one.specifier)) for one in map(Requirement, expand("backend"))}
    assert by_platform == by_hand


def test_the_build_backend_is_the_locked_one() -> None:
    assert PROJECT["build-system"]["requires"] == [one for one in expand("build") if one.startswith("hatchling")]
