"""What the system's service manager is given: a unit for systemd, a property list for launchd. Pure text.

`exo service` writes it (`exo.ops.service_manager` does that). The templates lie in `units/`. Settings
never stand in the unit, which everybody may read, but in a 0600 file beside the configuration.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal
from xml.sax.saxutils import escape

import msgspec

from exo.ops.errors import CommandError
from exo.ops.layers import CLIENT_VARIABLES
from exo.ops.settings import describe_settings
from exo.ops.upstream import VARIABLES, Refused

Manager = Literal["systemd", "launchd"]

LABEL = "io.exo.node"
UNIT = "exo.service"
OPEN_FILES = 65_535
STOP_MARGIN = 20
"""Seconds for runners and the message broker to end, beyond what running requests get."""
_ROOTS = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME")


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """What to install. `user` is whom a system-wide service runs as; empty for one of the calling user."""

    manager: Manager
    command: tuple[str, ...]
    environment_file: Path
    output: Path
    stop_seconds: int
    user: str = ""


def make_unit(service: Service) -> str:
    """Give the text of the unit or the property list."""
    return _make_systemd_unit(service) if service.manager == "systemd" else _make_property_list(service)


def find_unit_file(manager: Manager, *, system: bool, home: Path, config_home: Path) -> Path:
    """Give where the manager looks for it."""
    if manager == "systemd":
        return (Path("/etc/systemd/system") if system else config_home / "systemd" / "user") / UNIT
    return (Path("/Library/LaunchDaemons") if system else home / "Library" / "LaunchAgents") / f"{LABEL}.plist"


def make_stop_seconds(grace: float) -> int:
    """Give the seconds after which a stopping node is killed: later than it would end by itself."""
    return round(grace) + STOP_MARGIN


def choose_variables(environment: Mapping[str, str], *, extra: Mapping[str, str]) -> dict[str, str]:
    """Give what the node will see of this environment: everything that is a setting, and `extra` above it."""
    ours = {about.variable for about in describe_settings().values()}
    upstream = {name for name, fate in VARIABLES.items() if not isinstance(fate, Refused)}
    known = (ours | upstream | set(_ROOTS)) - set(CLIENT_VARIABLES)
    return {name: value for name, value in sorted({**environment, **extra}.items()) if name in known and value}


def make_environment_file(variables: Mapping[str, str]) -> str:
    """Give lines that systemd and sh read alike, as neither changes anything within single quotes."""
    for name, value in variables.items():
        if "'" in value or "\n" in value:
            raise CommandError(f"{name} holds a quote or a line break", remedy="set it in config.toml instead")
    return "".join(f"{name}='{value}'\n" for name, value in variables.items())


def _make_systemd_unit(service: Service) -> str:
    return _fill(
        UNIT,
        environment_file=str(service.environment_file).replace("%", "%%"),
        command=" ".join(_quote_for_systemd(word) for word in service.command),
        user=f"User={service.user}\n" if service.user else "",
        stop_seconds=service.stop_seconds,
        open_files=OPEN_FILES,
        target="multi-user.target" if service.user else "default.target",
    )


def _quote_for_systemd(word: str) -> str:
    spelt = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return spelt if re.fullmatch(r"[\w./=:@+-]+", spelt) else f'"{spelt}"'


def _make_property_list(service: Service) -> str:
    return _fill(
        "exo.plist",
        label=LABEL,
        environment_file=escape(str(service.environment_file)),
        command=_make_strings(service.command),
        user=f"<key>UserName</key>{_make_strings([service.user])}\n  " if service.user else "",
        stop_seconds=service.stop_seconds,
        open_files=OPEN_FILES,
        output=escape(str(service.output)),
    )


def _make_strings(words: Sequence[str]) -> str:
    return "\n    ".join(f"<string>{escape(word)}</string>" for word in words)


def _fill(name: str, **values: str | int) -> str:
    template = files("exo.ops").joinpath("units", name).read_text()
    return Template(template).substitute(values)
