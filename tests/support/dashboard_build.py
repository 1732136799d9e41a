"""dashboard/build.py for tests: it is a script beside the packages, so it is loaded by its path."""

import importlib.util
from types import ModuleType

from support.tracked import ROOT


def load_build_script() -> ModuleType:
    """Give the module; `is_current()` tells whether the built pages were made from this tree."""
    spec = importlib.util.spec_from_file_location("dashboard_build", ROOT / "dashboard" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
