"""A person looks after the cluster: nodes, launch, instances, what failed, and a node that goes away and comes back."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from support.browser import Opener
from support.node import NodeProcess, running_node, wait_for


def test_a_node_shows_its_name_and_its_memory_with_an_age(open_page: Opener) -> None:
    page = open_page()
    nodes = page.get_by_role("region", name="Nodes")
    expect(nodes).to_contain_text("1 of 1 node online")
    expect(nodes).to_contain_text("test-node")
    expect(nodes.get_by_role("meter", name="Memory of test-node")).to_have_attribute(
        "aria-valuetext", re.compile(r"GB of .*GB in use")
    )
    expect(nodes).to_contain_text("ago")


def test_a_model_is_placed_and_stopped_from_the_page(open_page: Opener, node: NodeProcess) -> None:
    page = open_page()
    before = set(node.instances_of("exo/scripted"))
    page.get_by_label("Model to place").select_option("exo/scripted")
    page.get_by_role("button", name="Place", exact=True).click()
    expect(page.get_by_text("exo/scripted is placed.")).to_be_visible()
    placed = set(node.instances_of("exo/scripted")) - before
    assert len(placed) == 1
    has_id = page.locator(f"code[title='{placed.pop()}']")
    card = page.get_by_role("region", name="Instances", exact=True).get_by_role("listitem").filter(has=has_id)
    expect(card.get_by_text("Ready", exact=True)).to_be_visible()
    card.get_by_role("button", name="Stop exo/scripted").click()
    expect(card).to_be_hidden()
    expect(page.get_by_role("region", name="Removed instances").locator(has_id)).to_be_visible()
    assert set(node.instances_of("exo/scripted")) == before


def test_a_placement_that_cannot_be_says_why_beside_the_button(open_page: Opener) -> None:
    page = open_page(refusals=1)
    page.get_by_label("Model to place").select_option("HuggingFaceTB/SmolLM2-135M-Instruct")
    page.get_by_role("button", name="Place", exact=True).click()
    launch = page.get_by_role("region", name="Launch")
    expect(launch.get_by_role("alert")).to_contain_text("model_files_missing")


def test_what_failed_stays_visible_with_its_cause(open_page: Opener, faulty_node: Any) -> None:
    with faulty_node("fail_load=1") as node:
        page = open_page(url=node.url)
        page.get_by_label("Model to place").select_option("exo/scripted")
        page.get_by_role("button", name="Place", exact=True).click()
        removed = page.get_by_role("region", name="Removed instances")
        expect(removed).to_contain_text("exo/scripted")
        expect(removed).to_contain_text("runner_failed")
        page.context.close()


def test_the_page_says_that_its_node_is_gone_and_comes_back_with_it(
    open_page: Opener, tmp_path: Path, home: dict[str, str], free_port: int
) -> None:
    with running_node(tmp_path / "node", "--port", str(free_port), "--offline", env=home) as node:
        page = open_page(url=node.url, refusals=None)
        node.kill()
        expect(page.get_by_role("alert").filter(has_text="keeps trying")).to_be_visible()
        expect(page.get_by_text("No connection", exact=True)).to_be_visible()
        node.start()
        expect(page.get_by_text("Live", exact=True)).to_be_visible()
        expect(page.get_by_text("keeps trying")).to_be_hidden()
        page.context.close()


def test_a_node_with_an_open_page_stops_in_good_order(open_page: Opener, tmp_path: Path, home: dict[str, str]) -> None:
    with running_node(tmp_path / "node", "--offline", env=home) as node:
        page = open_page(url=node.url, refusals=None)
        assert node.stop() == 0
        assert "Traceback" not in node.log()
        expect(page.get_by_text("No connection", exact=True)).to_be_visible()
        page.context.close()


@pytest.mark.full
def test_an_idle_page_does_not_poll(open_page: Opener, node: NodeProcess) -> None:
    page = open_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(f"{node.url}/")))
    # Two rounds of gauges come by themselves; State must not come with them.
    wait_for(lambda: page.wait_for_timeout(200) or len(asked) >= 2, seconds=40, what="rounds of gauges", node=node)
    assert set(asked) <= {"state/telemetry", "state/topology", "v1/cluster"}
    assert asked.count("state/topology") <= 1
    assert asked.count("v1/cluster") <= 1
