"""The built pages themselves: made from the sources of this tree, within their budgets, asking no other host."""

import gzip
import os
import re
from pathlib import Path
from types import ModuleType

import pytest

from exo.dashboard.assets import STATIC
from support.dashboard_build import load_build_script

INITIAL_SCRIPT_BYTES = 120_000
TOTAL_BYTES = 1_200_000
# Never fetched: XML namespaces, where Svelte's messages point a developer to, Tailwind's licence line.
HARMLESS = {"http://www.w3.org/", "https://svelte.dev/e/", "https://tailwindcss.com"}


@pytest.fixture(scope="module")
def build() -> ModuleType:
    return load_build_script()


@pytest.fixture(scope="module")
def index() -> str:
    page = STATIC / "index.html"
    if not page.is_file():
        if os.environ.get("EXO_DASHBOARD") == "require":
            pytest.fail("the dashboard is not built: run `make dashboard`")
        pytest.skip("the dashboard is not built: run `make dashboard`")
    return page.read_text()


def files_of_the_bundle() -> list[Path]:
    return [file for file in STATIC.rglob("*") if file.is_file()]


def test_the_bundle_was_made_from_these_sources(build: ModuleType, index: str) -> None:
    assert index
    assert build.is_current(), "the dashboard is older than its sources: run `make dashboard`"


def test_any_change_of_a_source_changes_the_hash(build: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "node_modules").mkdir()
    source = tmp_path / "src" / "main.ts"
    source.write_text("one")
    before = build.hash_sources(tmp_path)
    (tmp_path / "node_modules" / "package.js").write_text("installed, not written by us")
    assert build.hash_sources(tmp_path) == before
    source.write_text("two")
    changed = build.hash_sources(tmp_path)
    source.rename(tmp_path / "src" / "other.ts")
    assert len({before, changed, build.hash_sources(tmp_path)}) == 3


def test_the_first_load_is_small(index: str) -> None:
    scripts = re.findall(r'<(?:script|link)[^>]+(?:src|href)="\./([^"]+\.js)"', index)
    assert scripts
    size = sum(len(gzip.compress((STATIC / script).read_bytes())) for script in scripts)
    assert size <= INITIAL_SCRIPT_BYTES


def test_the_whole_bundle_is_small(index: str) -> None:
    assert index
    assert sum(file.stat().st_size for file in files_of_the_bundle()) <= TOTAL_BYTES


def test_no_file_holds_an_address_of_another_host(index: str) -> None:
    assert index
    for file in files_of_the_bundle():
        addresses = set(re.findall(rb"(?:https?:)?//[a-z0-9-]+\.[a-z]{2,}/?[^\"'`\s)]*", file.read_bytes()))
        named = {address.decode() for address in addresses}
        assert [name for name in named if not any(name.startswith(prefix) for prefix in HARMLESS)] == [], file.name


def test_the_page_has_nothing_inline_that_its_policy_blocks(index: str) -> None:
    assert re.findall(r"<script(?![^>]*\bsrc=)", index) == []
    assert "<style" not in index
    assert " style=" not in index
    assert re.findall(r"\son[a-z]+=", index) == []
