"""No file names a package registry or a path of the machine it was written on."""

import json
import re

from support.tracked import ROOT, list_files, name_of

# Spelt in halves, so that this file passes its own test.
REGISTRY = re.compile("|".join(re.escape(a + b) for a, b in [
    ("pypi", ".org"), ("pythonhosted", ".org"), ("registry.npm", "js.org"), ("deb.debian", ".org"),
    ("npm", "js.com"), ("registry.yarn", "pkg.com"),
]))  # fmt: skip
MACHINE = re.compile(r"(?<![\w.~])/(?:" + "|".join(["wo" + "rk", "ro" + "ot", "home/\\w+", "Users/\\w+"]) + ")/")


def find_in_text(pattern: re.Pattern[str]) -> list[str]:
    found: list[str] = []
    for file in list_files():
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{name_of(file)}: {match[0]}" for match in pattern.finditer(text)]
    return found


def test_no_file_names_a_registry() -> None:
    assert find_in_text(REGISTRY) == []


def test_no_file_names_a_path_of_this_machine() -> None:
    assert find_in_text(MACHINE) == []


def test_the_patterns_catch_what_they_are_for() -> None:
    assert REGISTRY.search("https://files.python" + "hosted.org/packages/x.whl")
    assert MACHINE.search("open('" + "/ro" + "ot/.cache/x')")
    assert not MACHINE.search("GET /v1/models and ~/wo" + "rk/exo")


def test_the_npm_lock_resolves_nowhere_in_particular() -> None:
    lock = json.loads((ROOT / "dashboard" / "web" / "package-lock.json").read_text())
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages
    assert [name for name, entry in packages.items() if "resolved" in entry] == []
    assert [name for name, entry in packages.items() if "integrity" not in entry and not entry.get("inBundle")] == []
