"""What systemd and launchd are given: it parses, it says what it must, and nothing private stands in it."""

import configparser
import plistlib
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from exo.ops import cli
from exo.ops.errors import CommandError
from exo.ops.service_files import (
    LABEL,
    Service,
    choose_variables,
    find_unit_file,
    make_environment_file,
    make_stop_seconds,
    make_unit,
)

SYSTEMD = Service(
    manager="systemd",
    command=("/opt/my exo/bin/exo", "up", "100%", "$HOME", 'a"b'),
    environment_file=Path("/c/service.env"),
    output=Path("/l/service.log"),
    stop_seconds=22,
)
LAUNCHD = replace(SYSTEMD, manager="launchd", command=("/opt/a&b/exo", "up"))


def read_unit(service: Service) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(make_unit(service))
    return parser


def test_a_systemd_unit_restarts_after_a_failure_and_stops_in_order() -> None:
    service = dict(read_unit(SYSTEMD)["Service"])
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
    assert (service["KillMode"], service["KillSignal"], service["TimeoutStopSec"]) == ("mixed", "SIGTERM", "22")
    assert int(service["LimitNOFILE"]) >= 65_535
    assert service["EnvironmentFile"] == "-/c/service.env"
    assert "User" not in service


def test_words_of_a_command_stay_words_in_systemd() -> None:
    command = read_unit(SYSTEMD)["Service"]["ExecStart"]
    assert command == '"/opt/my exo/bin/exo" up "100%%" "$$HOME" "a\\"b"'


def test_a_unit_of_the_machine_starts_at_boot_as_its_user() -> None:
    unit = read_unit(replace(SYSTEMD, user="ada"))
    assert unit["Service"]["User"] == "ada"
    assert unit["Install"]["WantedBy"] == "multi-user.target"
    assert read_unit(SYSTEMD)["Install"]["WantedBy"] == "default.target"


def test_a_property_list_says_the_same_to_launchd() -> None:
    read = plistlib.loads(make_unit(LAUNCHD).encode())
    assert read["Label"] == LABEL
    assert read["ProgramArguments"][-3:] == ["/c/service.env", "/opt/a&b/exo", "up"]
    assert read["KeepAlive"] == {"SuccessfulExit": False}
    assert (read["RunAtLoad"], read["ExitTimeOut"]) == (True, 22)
    assert read["SoftResourceLimits"]["NumberOfFiles"] >= 65_535
    assert read["StandardErrorPath"] == "/l/service.log"
    assert "UserName" not in read
    assert plistlib.loads(make_unit(replace(LAUNCHD, user="ada")).encode())["UserName"] == "ada"


def test_launchds_shell_hands_the_settings_over_as_they_are(tmp_path: Path) -> None:
    values = {"EXO_NAME": 'my "box" $HOME `id` \\n', "EXO_PORT": "8000"}
    settings = tmp_path / "service.env"
    settings.write_text(make_environment_file(values))
    service = replace(LAUNCHD, environment_file=settings, command=("/usr/bin/env", "-0"))
    arguments = plistlib.loads(make_unit(service).encode())["ProgramArguments"]
    done = subprocess.run(arguments, env={}, capture_output=True, text=True, check=True)
    seen = {line.partition("=")[0]: line.partition("=")[2] for line in done.stdout.split("\0")}
    assert {name: seen[name] for name in values} == values


def test_a_value_that_two_readers_would_read_differently_is_refused() -> None:
    for value in ("it's", "a\nb"):
        with pytest.raises(CommandError, match=r"EXO_NAME.*config\.toml"):
            make_environment_file({"EXO_NAME": value})


def test_only_settings_go_into_the_services_environment() -> None:
    environment = {"EXO_PORT": "80", "EXO_URL": "x", "EXO_TESTS": "1", "HF_TOKEN": "t", "EXO_HOST": "", "SHELL": "sh"}
    assert choose_variables(environment, extra={"EXO_DATA_DIR": "/d"}) == {
        "EXO_DATA_DIR": "/d",
        "EXO_PORT": "80",
        "HF_TOKEN": "t",
    }


def test_the_manager_waits_longer_than_the_node_needs() -> None:
    assert make_stop_seconds(2) > 2 + 10
    assert make_stop_seconds(600) > 600


@pytest.mark.parametrize(
    ("manager", "system", "file"),
    [
        ("systemd", False, "/h/.config/systemd/user/exo.service"),
        ("systemd", True, "/etc/systemd/system/exo.service"),
        ("launchd", False, f"/h/Library/LaunchAgents/{LABEL}.plist"),
        ("launchd", True, f"/Library/LaunchDaemons/{LABEL}.plist"),
    ],
)
def test_the_unit_lies_where_its_manager_looks(manager: str, file: str, *, system: bool) -> None:
    found = find_unit_file(manager, system=system, home=Path("/h"), config_home=Path("/h/.config"))  # type: ignore[arg-type]
    assert found == Path(file)


# The command, with a service manager that writes down what it was told.


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemctl` that notes its arguments and says `active`."""
    monkeypatch.setattr("sys.platform", "linux")
    tool = tmp_path / "bin" / "systemctl"
    tool.parent.mkdir()
    log = tmp_path / "told.txt"
    tool.write_text(f'#!/bin/sh\necho "$@" >> {log}\necho active\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    return log


def test_a_service_is_installed_looked_at_and_removed(
    systemctl: Path, own_directories: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EXO_PORT", "8123")
    assert cli.run(["service", "install"]) == 0
    unit = own_directories / "config" / "systemd" / "user" / "exo.service"
    settings = own_directories / "config" / "exo" / "service.env"
    assert str(settings) in unit.read_text()
    assert "EXO_PORT='8123'" in settings.read_text()
    assert settings.stat().st_mode & 0o777 == 0o600
    assert systemctl.read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable exo.service",
        "--user restart exo.service",
    ]
    assert cli.run(["service", "status"]) == 0
    assert "systemd: active" in capsys.readouterr().out
    assert cli.run(["service", "uninstall"]) == 0
    assert not unit.exists()
    assert not settings.exists()
    assert "--user disable --now exo.service" in systemctl.read_text()
    assert cli.run(["service", "status"]) == 1
    assert cli.run(["service", "uninstall"]) == 1


def test_printing_changes_nothing_and_shows_no_secret(
    systemctl: Path, own_directories: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_private")
    assert cli.run(["service", "install", "--print"]) == 0
    shown = capsys.readouterr().out
    assert "ExecStart=" in shown
    assert "HF_TOKEN" in shown
    assert "hf_private" not in shown
    assert not systemctl.exists()
    assert list(own_directories.rglob("exo.service")) == []


def test_without_a_service_manager_the_error_says_what_to_do(
    own_directories: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(own_directories))
    monkeypatch.setattr("sys.platform", "linux")
    assert cli.run(["service", "install"]) == 1
    assert "--legacy-daemon" in capsys.readouterr().err


def test_only_root_changes_the_machines_service(
    systemctl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert cli.run(["service", "install", "--system"]) == 1
    assert not Path("/etc/exo").exists()
    assert "sudo" in capsys.readouterr().err
    assert not systemctl.exists()
