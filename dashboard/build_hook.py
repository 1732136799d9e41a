"""The hatchling build hook: puts freshly built pages into the sdist and the wheel.

EXO_DASHBOARD says how: `auto` (default: build when npm is there, else warn and ship without), `require`, `skip`.
An editable install never builds; it reads the pages from the tree, where `make dashboard` puts them.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardBuildHook(BuildHookInterface[Any]):
    """Runs dashboard/build.py before hatchling collects the files."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        script = Path(self.root) / "dashboard" / "build.py"
        mode = os.environ.get("EXO_DASHBOARD", "auto")
        subprocess.run([sys.executable, script, mode], check=True)
