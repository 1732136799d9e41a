"""A real node and a real browser for the tests of the page."""

import os
import shutil
import socket
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from exo.dashboard.assets import STATIC
from support.browser import BROWSERS, FLAGS, PATIENCE_MS, Opener
from support.dashboard_build import load_build_script
from support.node import NodeProcess, running_node

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Generator[Browser]:
    """Debian's Chromium. Playwright's own would have to be downloaded."""
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"needs one of {', '.join(BROWSERS)}, for example Debian's package chromium")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Generator[dict[str, str]]:
    """Variables of a person who never ran exo before, for nodes that outlive one test."""
    if not (STATIC / "index.html").is_file():
        pytest.skip("the dashboard is not built: run `make dashboard`")
    if not load_build_script().is_current():
        pytest.fail("the dashboard is older than its sources: run `make dashboard`")
    folder = tmp_path_factory.mktemp("browser-home")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("EXO_")]:
            patch.delenv(name)
        kinds = ("CONFIG", "DATA", "CACHE", "STATE")
        yield {"HOME": str(folder)} | {f"XDG_{kind}_HOME": str(folder / kind.lower()) for kind in kinds}


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, home: dict[str, str]) -> Generator[NodeProcess]:
    """`exo up` serving `exo/scripted`, shared by all tests that leave it as they found it."""
    # Slow enough that an answer is seen to grow and can be stopped; a context that a short prompt overflows.
    env = {**home, "EXO_SCRIPTED": "tokens_per_second=60"}
    data = tmp_path_factory.mktemp("browser-node")
    with running_node(data, "--name", "test-node", "--offline", env=env) as process:
        order = {"model_id": "exo/scripted", "context_length": 2048}
        httpx2.post(f"{process.url}/place_instance", json=order, timeout=30).raise_for_status()
        process.await_ready("exo/scripted")
        yield process


@pytest.fixture(scope="session")
def exo_url(node: NodeProcess) -> str:
    return node.url


FaultyNode = Callable[[str], AbstractContextManager[NodeProcess]]


@pytest.fixture
def faulty_node(tmp_path: Path, home: dict[str, str]) -> FaultyNode:
    """Runs a node of its own whose scripted engine has the faults that a script names."""

    def run(script: str) -> AbstractContextManager[NodeProcess]:
        env = {**home, "EXO_SCRIPTED": script, "EXO_MAX_INSTANCE_RETRIES": "1"}
        return running_node(tmp_path / "node", "--name", "faulty-node", "--offline", env=env)

    return run


@pytest.fixture
def free_port() -> int:
    """A port that a node can come back to, because nobody else was given it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def open_page(browser: Browser, exo_url: str) -> Generator[Opener]:
    opener = Opener(browser, url=exo_url)
    yield opener
    opener.close()
