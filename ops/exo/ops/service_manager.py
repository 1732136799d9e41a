"""Hands the node over to the system's service manager, and takes it back: the doing behind `exo service`.

Runs `systemctl` or `launchctl` and nothing else. What they are given comes from `exo.ops.service_files`.
"""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from exo.ops.errors import CommandError
from exo.ops.files import write_private
from exo.ops.service_files import LABEL, UNIT, Manager, find_unit_file

_PATIENCE = 60.0
READABLE = 0o644
"""Of the unit: the service managers want it so, and nothing in it is secret."""


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a service. `state` is the manager's own word: `active`, `failed`, `not loaded`."""

    file: Path
    exists: bool
    state: str = ""


def find_manager() -> Manager:
    """Give the manager of this system."""
    return "launchd" if sys.platform == "darwin" else "systemd"


class ServiceManager:
    """The service of this user, or with `system` the one of the machine, which only root may change."""

    def __init__(self, manager: Manager, *, system: bool) -> None:
        self.manager: Manager = manager
        self.system = system
        home = Path(os.environ.get("HOME") or Path.home())
        root = Path(os.environ.get("XDG_CONFIG_HOME", ""))
        config_home = root if root.is_absolute() else home / ".config"
        self.file = find_unit_file(manager, system=system, home=home, config_home=config_home)

    def install(self, unit: str) -> None:
        """Write the unit and start it, now and at each log-in or boot."""
        self.require()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        write_private(self.file, unit.encode())
        self.file.chmod(READABLE)
        if self.manager == "systemd":
            self._run([*self._systemctl, "daemon-reload"])
            self._run([*self._systemctl, "enable", UNIT])
            self._run([*self._systemctl, "restart", UNIT])
            return
        # A second installation replaces the first one.
        self._try([*self._launchctl, "bootout", self._target])
        self._run([*self._launchctl, "bootstrap", self._domain, str(self.file)])

    def require(self) -> None:
        """Raise `CommandError` unless a service can be installed from here."""
        self._require_rights()
        if shutil.which(self._tool) is None:
            raise CommandError(
                f"{self._tool} is not on this machine, so there is nobody to hand the node over to",
                remedy="`exo service install --print` shows what it would be given; `exo up --legacy-daemon` detaches",
            )

    def uninstall(self) -> bool:
        """Stop it and forget it; tells whether there was one."""
        if not self.file.exists():
            return False
        self._require_rights()
        if shutil.which(self._tool) is not None:
            if self.manager == "systemd":
                self._try([*self._systemctl, "disable", "--now", UNIT])
            else:
                self._try([*self._launchctl, "bootout", self._target])
        self.file.unlink()
        if self.manager == "systemd" and shutil.which(self._tool) is not None:
            self._try([*self._systemctl, "daemon-reload"])
        return True

    def look(self) -> Installed:
        """Tell whether it is installed, and what the manager says of it."""
        exists = self.file.exists()
        if shutil.which(self._tool) is None:
            return Installed(file=self.file, exists=exists, state=f"{self._tool} is not on this machine")
        if self.manager == "systemd":
            done = self._try([*self._systemctl, "is-active", UNIT])
            return Installed(file=self.file, exists=exists, state=(done.stdout or done.stderr).strip())
        done = self._try([*self._launchctl, "print", self._target])
        lines = [line.strip() for line in done.stdout.splitlines()]
        states = [line.removeprefix("state = ") for line in lines if line.startswith("state = ")]
        return Installed(file=self.file, exists=exists, state=states[0] if states else "not loaded")

    @property
    def _tool(self) -> str:
        return "systemctl" if self.manager == "systemd" else "launchctl"

    @property
    def _systemctl(self) -> list[str]:
        return ["systemctl"] if self.system else ["systemctl", "--user"]

    @property
    def _launchctl(self) -> list[str]:
        return ["launchctl"]

    @property
    def _domain(self) -> str:
        return "system" if self.system else f"gui/{os.getuid()}"

    @property
    def _target(self) -> str:
        return f"{self._domain}/{LABEL}"

    def _require_rights(self) -> None:
        if self.system and os.geteuid() != 0:
            raise CommandError(f"only root may change {self.file}", remedy="use sudo, or leave --system out")

    def _run(self, command: Sequence[str]) -> None:
        done = self._try(command)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().splitlines()
            raise CommandError(
                f"`{' '.join(command)}` ended with status {done.returncode}",
                remedy="without a session of your own, as in a container or over plain ssh, use --system as root",
                evidence=said,
            )

    def _try(self, command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CommandError(f"`{' '.join(command)}`: {error}") from error


def find_service_user() -> str:
    """Give whom a system-wide service runs as: the person behind sudo, else who calls."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
