"""Every third-party package has one home folder; a scan of all imports, lazy ones too, holds us to it."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.tracked import ROOT, SOURCE_ROOTS, list_sources, name_of

# msgspec and structlog are the two that may be imported anywhere - but for streams, which stays pure.
EVERYWHERE = {"msgspec", "structlog"}
HOME = {
    "streams": {"msgspec"},
    "broker": EVERYWHERE | {"nats", "nkeys", "zeroconf"},
    "services": EVERYWHERE | {"psutil"},
    "runners": EVERYWHERE | {"gguf", "jinja2", "llguidance", "mlx", "mlx_lm", "numpy", "tokenizers", "transformers"},
    "gateway": EVERYWHERE | {"litestar", "prometheus_client", "uvicorn"},
    "dashboard": EVERYWHERE,
    "ops": EVERYWHERE | {"click", "httpx2", "platformdirs", "rich", "typer", "uvloop"},
}


@pytest.mark.parametrize("folder", SOURCE_ROOTS)
def test_a_folder_imports_only_what_lives_there(folder: str) -> None:
    strangers = {
        f"{name_of(file)}: {module}"
        for file in list_sources(".py")
        if file.is_relative_to(ROOT / folder / "exo")
        for module in find_third_party(file)
        if module not in HOME[folder]
    }
    assert strangers == set()


def test_streams_do_no_io() -> None:
    impure = {"asyncio", "io", "os", "pathlib", "socket", "subprocess", "threading", "time"}
    found = {
        f"{name_of(file)}: {module}"
        for file in list_sources(".py")
        if file.is_relative_to(ROOT / "streams" / "exo")
        for module in find_imports(file)
        if module in impure or (module in {"random", "secrets", "uuid"} and file.name != "ids.py")
    }
    assert found == set()


def test_the_scan_sees_lazy_imports(tmp_path: Path) -> None:
    file = tmp_path / "lazy.py"
    file.write_text("import exo.streams.ids\nimport os.path\ndef load():\n    from nats.aio import client\n")
    assert find_third_party(file) == {"nats"}


def find_third_party(file: Path) -> set[str]:
    """The top-level names a file imports that are neither Python's nor ours."""
    return {module for module in find_imports(file) if module != "exo" and module not in sys.stdlib_module_names}


def find_imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.split(".")[0]
