"""A person opens the page of a node from another machine, and needs an API key for it."""

from collections.abc import Generator

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from support.browser import Opener
from support.node import NodeProcess, running_node

ELSEWHERE = {"X-Forwarded-For": "192.0.2.7"}
"""Makes a request count as one from another machine."""


@pytest.fixture(scope="module")
def open_node(tmp_path_factory: pytest.TempPathFactory, home: dict[str, str]) -> Generator[NodeProcess]:
    """A node whose API is open to the network."""
    data = tmp_path_factory.mktemp("browser-open-node")
    with running_node(data, "--name", "open-node", "--offline", "--host", "0.0.0.0", env=home) as process:
        yield process


@pytest.fixture
def page(browser: Browser, open_node: NodeProcess) -> Generator[Page]:
    opener = Opener(browser, url=open_node.url)
    # How often the page was refused depends on how soon a person types.
    yield opener(refusals=None, headers=ELSEWHERE, live=False)
    opener.close()


def make_key(node: NodeProcess, scope: str) -> str:
    made = httpx2.post(f"{node.url}/v1/keys", json={"name": "page", "scopes": [scope]}, timeout=30).raise_for_status()
    return made.json()["key"]


def use_key(page: Page, key: str) -> None:
    page.get_by_label("API key", exact=True).fill(key)
    page.get_by_role("button", name="Use key").click()


def test_a_page_without_a_key_asks_for_one_and_says_where_it_comes_from(page: Page) -> None:
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("This node asks for an API key.")
    expect(alert).to_contain_text("exo keys add NAME --scope admin")
    expect(page.get_by_text("API key needed", exact=True)).to_be_visible()
    expect(page.get_by_text("No connection")).to_be_hidden()


def test_with_a_key_everything_works_and_goes_on_to_after_a_reload(page: Page, open_node: NodeProcess) -> None:
    use_key(page, make_key(open_node, "admin"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("open-node")
    page.get_by_label("Model to place").select_option("exo/scripted")
    page.get_by_role("button", name="Place", exact=True).click()
    # Seen through the event log, which needs the key as well.
    expect(page.get_by_role("region", name="Instances", exact=True)).to_contain_text("1 of 1 instance ready")
    page.reload()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


@pytest.mark.parametrize("wrong", ["exo-wrong", "wrong"])
def test_a_wrong_key_is_called_so_and_can_be_replaced(page: Page, open_node: NodeProcess, wrong: str) -> None:
    use_key(page, wrong)
    expect(page.get_by_role("alert")).to_contain_text("is not admitted")
    use_key(page, make_key(open_node, "admin"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_a_key_that_may_not_look_can_be_replaced(page: Page, open_node: NodeProcess) -> None:
    use_key(page, make_key(open_node, "infer"))
    expect(page.get_by_role("alert")).to_contain_text("this needs read")
    use_key(page, make_key(open_node, "admin"))
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    page.get_by_role("button", name="API key").click()
    expect(page.get_by_label("API key", exact=True)).to_be_visible()


def test_the_own_machine_needs_no_key(browser: Browser, open_node: NodeProcess) -> None:
    opener = Opener(browser, url=open_node.url)
    page = opener()
    expect(page.get_by_role("region", name="Nodes")).to_contain_text("open-node")
    opener.close()
