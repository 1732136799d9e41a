"""The wheel as a user gets it: built with the pages, installed where there is no node, started, seen over HTTP."""

import mimetypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urljoin

import httpx2
import pytest

from support.tracked import ROOT

START_SECONDS = 60
pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True)
class Installation:
    """A virtual environment with the wheel in it, and variables under which nothing of this machine's PATH is seen."""

    folder: Path
    env: dict[str, str]

    @property
    def exo(self) -> Path:
        return self.folder / "bin" / "exo"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built through the source distribution's own hook; the hook finds the pages current or builds them."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "EXO_DASHBOARD": "require"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("exo-*.whl"))


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """A fresh environment that sees the dependencies of this one, but not its editable exo.

    It is laid by hand: Debian ships Python without the venv module. Dependencies come by a .pth file, whose folder
    is searched for modules but not for further .pth files, such as the one of the editable install.
    """
    folder = tmp_path_factory.mktemp("installation")
    library = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    library.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    (folder / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    (library / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    (folder / "home").mkdir()
    return Installation(folder, {"PATH": str(folder / "bin"), "HOME": str(folder / "home")})


@dataclass(frozen=True)
class Served:
    """A running `exo up` of the installed wheel."""

    url: str


@pytest.fixture
def served(installation: Installation, tmp_path: Path) -> Iterator[Served]:
    port = pick_port()
    flags = ["--local", "--no-worker", "--offline", "--port", str(port), "--data-dir", tmp_path / "data"]
    command = [installation.exo, "up", *flags]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, env=installation.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(url, process, log=tmp_path / "log")
        yield Served(url)
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=30)
    assert code in {0, 130}


def test_the_wheel_holds_the_seven_packages_and_the_pages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    packages = {name.split("/")[1] for name in names if name.startswith("exo/") and name.endswith("/__init__.py")}
    assert packages >= {"streams", "broker", "services", "runners", "gateway", "dashboard", "ops"}
    assert "exo/__init__.py" not in names
    assert "exo/dashboard/static/index.html" in names
    assert "exo/dashboard/static/build.json" in names
    assert [name for name in names if name.startswith(("tests/", "bench/")) or "node_modules" in name] == []


def test_the_installed_command_knows_its_version(installation: Installation, wheel: Path) -> None:
    shown = subprocess.run(
        [installation.exo, "--version"], env=installation.env, capture_output=True, text=True, check=True
    )
    assert wheel.name.split("-")[1] in shown.stdout


def test_the_installed_package_is_the_wheel_and_node_is_not_there(installation: Installation) -> None:
    python = installation.folder / "bin" / "python"
    script = "import exo.dashboard, exo.streams; print(exo.dashboard.__file__, exo.streams.__file__, sep='\\n')"
    shown = subprocess.run([python, "-c", script], env=installation.env, capture_output=True, text=True, check=True)
    assert all(Path(line).is_relative_to(installation.folder) for line in shown.stdout.split())
    assert shutil.which("node", path=installation.env["PATH"]) is None


def test_the_installed_program_serves_the_pages_with_all_they_ask_for(served: Served) -> None:
    page = httpx2.get(f"{served.url}/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    assert "no-cache" in page.headers["cache-control"]
    references = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert any(reference.endswith(".js") for reference in references)
    for reference in references:
        asset = httpx2.get(urljoin(f"{served.url}/", reference))
        assert asset.status_code == 200, reference
        kind = mimetypes.guess_type(reference)[0] or ""
        assert asset.headers["content-type"].split(";")[0] in {kind, "text/javascript"}, reference
        if "/assets/" in f"/{reference}":
            assert "immutable" in asset.headers["cache-control"], reference


def pick_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_healthy(url: str, process: subprocess.Popen[bytes], *, log: Path) -> None:
    """Poll /health until it answers; fails with the log when the process ends or the deadline passes."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx2.get(f"{url}/health", timeout=1).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.05)
    pytest.fail(f"exo up did not become healthy (exit code {process.poll()}):\n{log.read_text()[-4000:]}")
