"""The bootstrap's decisions: which tools are usable, what is current, and where it refuses."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import environment
import node_tool
import stamps
import system_packages
import uv_tool
from report import SetupError
from support.tracked import ROOT


@pytest.mark.parametrize(
    ("printed", "version"),
    [("uv 0.13.9 (x86_64-unknown-linux-gnu)", (0, 13)), ("uv 1.0.0", (1, 0)), ("", (0, 0)), ("uv dev", (0, 0))],
)
def test_uv_versions_are_read(printed: str, version: tuple[int, int]) -> None:
    assert uv_tool.parse_version(printed) == version


@pytest.mark.parametrize("version", ["v20.19.0", "v20.20.2", "v22.13.1", "v24.0.0", "v25.1.0"])
def test_node_versions_the_dashboard_builds_with(version: str) -> None:
    assert node_tool.is_usable(version)


@pytest.mark.parametrize("version", ["", "v18.20.4", "v20.18.3", "v21.7.0", "v22.12.0", "v23.5.0", "node"])
def test_node_versions_it_does_not(version: str) -> None:
    assert not node_tool.is_usable(version)


@pytest.mark.parametrize("libc", [("glibc", "2.35"), ("glibc", "2.41"), ("", ""), ("libc", "2.9")])
def test_systems_with_wheels_pass(libc: tuple[str, str]) -> None:
    environment.check_glibc(libc)


def test_an_old_glibc_is_refused_by_name() -> None:
    with pytest.raises(SetupError, match=r"glibc 2\.35 or newer .* has 2\.31"):
        environment.check_glibc(("glibc", "2.31"))


def test_a_stamp_is_current_until_an_input_changes(tmp_path: Path) -> None:
    lock, stamp = tmp_path / "run.txt", tmp_path / "deep" / "stamp"
    lock.write_text("a==1")
    first = stamps.hash_inputs([lock])
    assert not stamps.is_current(stamp, first)
    stamps.write(stamp, first)
    assert stamps.is_current(stamp, first)
    lock.write_text("a==2")
    assert not stamps.is_current(stamp, stamps.hash_inputs([lock]))


def test_without_root_one_line_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_program(tmp_path / "apt-get", "exit 99")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert not system_packages.install("libopenblas0-pthread")
    assert "sudo apt-get install -y libopenblas0-pthread" in capsys.readouterr().err


def test_root_updates_the_lists_only_when_the_package_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    lists = tmp_path / "lists"
    script = f'echo "$1" >> {log}; if [ "$1" = update ]; then : > {lists}; fi; [ -e {lists} ]'
    make_program(tmp_path / "apt-get", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert system_packages.install("chromium")
    assert log.read_text().split() == ["install", "update", "install"]
    assert system_packages.install("chromium")
    assert log.read_text().split()[3:] == ["install"]


def test_a_missing_openblas_that_cannot_be_installed_is_only_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_program(tmp_path / "apt-get", "echo no such mirror; exit 100")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(system_packages.platform, "system", lambda: "Linux")
    monkeypatch.setattr(system_packages.ctypes.util, "find_library", find_nothing)
    system_packages.ensure_openblas()
    errors = capsys.readouterr().err
    assert "warning" in errors
    assert "no such mirror" in errors


def test_without_uv_and_pip_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_program(tmp_path / "python3", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    monkeypatch.setattr(uv_tool, "_FETCHED", tmp_path / "no-uv")
    with pytest.raises(SetupError, match="sudo apt-get install -y python3-pip"):
        uv_tool.find_uv()


def test_a_uv_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    make_program(tmp_path / "bin" / "uv", "echo uv 0.2.1")
    make_program(tmp_path / "fetched", "echo uv 0.13.9")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(uv_tool, "_FETCHED", tmp_path / "fetched")
    assert uv_tool.find_uv() == tmp_path / "fetched"
    make_program(tmp_path / "bin" / "uv", "echo uv 0.8.0")
    assert uv_tool.find_uv() == tmp_path / "bin" / "uv"


def test_an_unknown_step_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "ops" / "setup", "nonsense"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "nonsense" in done.stderr


def test_every_make_target_is_in_the_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = next(line for line in makefile.splitlines() if line.startswith(".PHONY:")).split()[1:]
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert [target for target in phony if f"make {target} " not in shown] == []


def make_program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def find_nothing(_name: str) -> None:
    """A linker that knows no library."""
