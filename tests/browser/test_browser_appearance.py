"""The page for everybody: light and dark, a phone's width, a keyboard alone, and what axe finds."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from support.browser import Opener, ask, save_screenshot
from support.tracked import ROOT

AXE = ROOT / "dashboard" / "web" / "node_modules" / "axe-core" / "axe.min.js"
SCREENSHOTS = ROOT / ".build" / "screenshots"
PHONE = 375
DESKTOP = 1280

RUN_AXE = """
async () => {
  const { violations } = await axe.run();
  return violations.map((found) => `${found.id}: ${found.nodes.map((node) => node.html).join(" | ")}`);
}
"""


def fill(page: Page) -> None:
    """Put on the page what is rarely there: an answer with reasoning, and two refusals."""
    answered = ask(page, "[[think:hm]][[say:An answer.]]")
    expect(answered.get_by_test_id("answer")).to_have_text("An answer.")
    expect(ask(page, "too long " * 2000).get_by_role("alert")).to_be_visible()
    page.get_by_label("Model to place").select_option("HuggingFaceTB/SmolLM2-135M-Instruct")
    page.get_by_role("button", name="Place", exact=True).click()
    expect(page.get_by_role("region", name="Launch").get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_axe_finds_nothing(open_page: Opener, width: int, scheme: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: run `make dashboard`")
    # axe is a script from outside, which the page's own policy would block.
    page = open_page(width=width, scheme=scheme, refusals=2, bypass_csp=True)
    fill(page)
    save_screenshot(page, SCREENSHOTS, f"{scheme}-{width}")
    page.evaluate(AXE.read_text())
    assert page.evaluate(RUN_AXE) == []


def test_nothing_is_wider_than_a_phone(open_page: Opener) -> None:
    page = open_page(width=PHONE, refusals=2)
    fill(page)
    ask(page, f"[[say:{'x' * 300}]]")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE


def ground_of(page: Page) -> Any:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_the_theme_follows_the_system_until_it_is_chosen(open_page: Opener) -> None:
    light, dark = open_page(scheme="light"), open_page(scheme="dark")
    assert ground_of(light) != ground_of(dark)
    toggle = light.get_by_role("button", name="Theme")
    toggle.click()
    expect(toggle).to_have_text("Theme: light")
    toggle.click()
    expect(toggle).to_have_text("Theme: dark")
    assert ground_of(light) == ground_of(dark)
    light.reload()
    expect(toggle).to_have_text("Theme: dark")
    assert ground_of(light) == ground_of(dark)


def test_a_keyboard_is_enough(open_page: Opener) -> None:
    page = open_page()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to chat")).to_be_focused()
    expect(page.get_by_role("link", name="Skip to chat")).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Message")).to_be_focused()
    page.keyboard.type("[[say:typed]]")
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Send")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("answer")).to_have_text("typed")


def test_the_page_is_served_with_its_policy(open_page: Opener, exo_url: str) -> None:
    page = open_page()
    answer = page.request.get(f"{exo_url}/")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"] == "no-cache"
