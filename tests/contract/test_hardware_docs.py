"""docs/hardware.md names every finding, every link kind and the revision of macmon; the RDMA script is sound."""

import os
import re
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from exo.services.telemetry.macmon_findings import INSTALL
from exo.streams.links import LinkKind
from support.doc_tables import code, read_rows
from support.tracked import ROOT

SOURCES = ("services/exo/services", "streams/exo/streams")
SCRIPT = ROOT / "ops" / "units" / "rdma" / "setup.sh"

NETWORKSETUP = """#!/bin/sh
case "$1" in
    -listallhardwareports)
        printf 'Hardware Port: Ethernet\\nDevice: en0\\n\\nHardware Port: Thunderbolt 1\\nDevice: en2\\n\\n'
        printf 'Hardware Port: Thunderbolt 2\\nDevice: en3\\n\\n'
        printf 'Hardware Port: Thunderbolt Bridge\\nDevice: bridge0\\n' ;;
    -listlocations) cat "$FAKE/locations" ;;
    -getcurrentlocation) cat "$FAKE/location" ;;
    -listallnetworkservices)
        printf 'An asterisk (*) denotes that a network service is disabled.\\n'
        cat "$FAKE/services" ;;
    -createlocation) printf '%s\\n' "$2" >>"$FAKE/locations" ;;
    -switchtolocation) printf '%s\\n' "$2" >"$FAKE/location" ;;
    -createnetworkservice) printf '%s\\n' "$2" >>"$FAKE/services" ;;
esac
"""


def test_every_finding_is_documented() -> None:
    used = {
        name
        for folder in SOURCES
        for file in (ROOT / folder).rglob("*.py")
        for name in re.findall(r'NodeFinding\(\s*code="(\w+)"', file.read_text())
    }
    rows = read_rows("hardware.md", "Findings")
    assert len(used) >= 11
    assert {row[0] for row in rows} == {code(name) for name in used}


def test_every_kind_of_link_is_documented() -> None:
    text = (ROOT / "docs" / "hardware.md").read_text()
    assert [kind for kind in get_args(LinkKind) if f"`{kind}`" not in text] == []


def test_the_pinned_macmon_is_the_one_that_findings_name() -> None:
    assert INSTALL in (ROOT / "docs" / "hardware.md").read_text()


def run_script(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{directory}:{os.environ['PATH']}", "FAKE": str(directory)}
    return subprocess.run(
        ["sh", str(SCRIPT), *arguments], env=environment, capture_output=True, text=True, check=False, timeout=20
    )


def play(directory: Path, name: str, body: str) -> None:
    (directory / name).write_text(body)
    (directory / name).chmod(0o755)


@pytest.fixture
def mac(tmp_path: Path) -> Path:
    """Programs that answer as a Mac's do, and remember what was changed."""
    play(tmp_path, "uname", "#!/bin/sh\necho Darwin\n")
    play(tmp_path, "rdma_ctl", "#!/bin/sh\necho disabled\n")
    play(tmp_path, "networksetup", NETWORKSETUP)
    play(tmp_path, "ifconfig", "#!/bin/sh\n[ $# -gt 1 ] || printf 'bridge0: flags=8863<UP>\\n\\tmember: en2\\n'\n")
    (tmp_path / "locations").write_text("Automatic\n")
    (tmp_path / "location").write_text("Automatic\n")
    (tmp_path / "services").write_text("Ethernet\n*Thunderbolt Bridge\n")
    return tmp_path


def test_the_rdma_script_is_valid_and_refuses_other_systems() -> None:
    subprocess.run(["sh", "-n", str(SCRIPT)], check=True)
    done = subprocess.run(["sh", str(SCRIPT), "--dry-run"], capture_output=True, text=True, check=False)
    if os.uname().sysname != "Darwin":
        assert (done.returncode, "matter of macOS" in done.stderr) == (1, True)
    assert os.access(SCRIPT, os.X_OK)


def test_the_rdma_script_says_what_it_would_do_and_does_none_of_it(mac: Path) -> None:
    done = run_script(mac, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "note: RDMA is off: start into recovery mode and run `rdma_ctl enable`",
        "+ networksetup -createlocation exo populate",
        "+ networksetup -switchtolocation exo",
        "+ networksetup -setnetworkserviceenabled Thunderbolt Bridge off",
        "+ ifconfig bridge0 deletem en2",
        "+ ifconfig bridge0 down",
        "+ networksetup -createnetworkservice exo Thunderbolt 1 Thunderbolt 1",
        "+ networksetup -setnetworkserviceenabled exo Thunderbolt 1 on",
        "+ networksetup -setdhcp exo Thunderbolt 1",
        "note: on a Mac Studio leave Thunderbolt 1 (en2, beside Ethernet) without a cable",
        "+ networksetup -createnetworkservice exo Thunderbolt 2 Thunderbolt 2",
        "+ networksetup -setnetworkserviceenabled exo Thunderbolt 2 on",
        "+ networksetup -setdhcp exo Thunderbolt 2",
        "done: `ibv_devinfo` shows PORT_ACTIVE for each port with a cable, `exo doctor` what is missing",
    ]
    assert (mac / "location").read_text() == "Automatic\n"


def test_the_rdma_script_makes_nothing_twice(mac: Path) -> None:
    play(mac, "id", "#!/bin/sh\necho 0\n")
    (mac / "locations").write_text("Automatic\nexo\n")
    (mac / "location").write_text("exo\n")
    first, second = run_script(mac), run_script(mac)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert (mac / "services").read_text().splitlines() == [
        "Ethernet",
        "*Thunderbolt Bridge",
        "exo Thunderbolt 1",
        "exo Thunderbolt 2",
    ]
    assert "location exo is there" in second.stdout
    assert "create" not in second.stdout
    assert "switchto" not in second.stdout


def test_the_rdma_script_knows_no_other_words(mac: Path) -> None:
    done = run_script(mac, "--force")
    assert (done.returncode, "usage" in done.stderr) == (1, True)
