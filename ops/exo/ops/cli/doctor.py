"""`exo doctor`: what is wrong on this machine, and what to do about it."""

import asyncio
from typing import TYPE_CHECKING

from exo.ops.cli.options import DataDir, Json
from exo.ops.errors import FAILED, OK, SettingsError
from exo.ops.terminal import paint, say

if TYPE_CHECKING:
    from exo.ops.doctor import Facts
    from exo.ops.findings import Finding

_MARKS = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "error": ("error", "red")}


def doctor(data_dir: DataDir = None, *, json: Json = False) -> int:
    """Look at everything exo needs here. Exits with 1 when a finding is an error."""
    import msgspec

    from exo.ops.doctor import diagnose

    findings = diagnose(_examine(data_dir))
    if json:
        say(msgspec.json.format(msgspec.json.encode(findings), indent=2).decode())
    else:
        for finding in findings:
            _show(finding)
    return FAILED if any(finding.severity == "error" for finding in findings) else OK


def _examine(data_dir: DataDir) -> "Facts":
    from msgspec.structs import replace

    from exo.ops.examine import examine
    from exo.ops.layers import load_settings

    try:
        return asyncio.run(examine(load_settings({"data_dir": data_dir})))
    except SettingsError as error:
        # Everything else is looked at as if there were no settings.
        defaults = load_settings({"data_dir": data_dir}, {}, read_file=False)
        return replace(asyncio.run(examine(defaults)), settings_problem=str(error))


def _show(finding: "Finding") -> None:
    mark, color = _MARKS[finding.severity]
    say(f"{paint(mark.ljust(7), color)} {finding.subject}: {finding.message}")
    if finding.remedy:
        say(f"        -> {finding.remedy}")
