"""The dashboard in a real browser: pages that are watched for whatever a person would not see."""

import re
from collections.abc import Mapping
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, Request

# What a test machine must not do: sandbox as root, draw on a GPU it lacks, or phone home behind our back.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 20_000

# The browser logs each failed request as an error; a test that provokes some says how many it expects.
_REFUSED = re.compile(r"^Failed to load resource: (the server responded with a status of [45]\d\d|net::ERR_)")


class Watch:
    """What a page did besides what is looked at: complaints, failed requests, and other hosts that it asked."""

    def __init__(self, page: Page, *, url: str) -> None:
        self.complaints: list[str] = []
        self.refusals: list[str] = []
        self.elsewhere: list[str] = []
        self._url = url
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            (self.refusals if _REFUSED.match(message.text) else self.complaints).append(message.text)

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(f"{self._url}/"):
            self.elsewhere.append(request.url)


class Opener:
    """Opens the page in fresh profiles and, at the end, insists that nothing was amiss in any of them."""

    def __init__(self, browser: Browser, *, url: str) -> None:
        self._browser = browser
        self._url = url
        self._opened: list[tuple[BrowserContext, Watch, int | None]] = []

    def __call__(
        self,
        *,
        url: str = "",
        width: int = 1280,
        scheme: str = "light",
        refusals: int | None = 0,
        bypass_csp: bool = False,
        headers: Mapping[str, str] | None = None,
        live: bool = True,
    ) -> Page:
        """Give a page that is `live`. `refusals` counts the failed requests the test provokes; None: any number."""
        url = url or self._url
        context = self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            bypass_csp=bypass_csp,
            extra_http_headers=dict(headers or {}),
        )
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        self._opened.append((context, Watch(page, url=url), refusals))
        page.goto(f"{url}/")
        if live:
            page.get_by_text("Live", exact=True).wait_for()
        return page

    def close(self) -> None:
        for context, watch, refusals in self._opened:
            context.close()
            assert watch.elsewhere == []
            assert watch.complaints == []
            assert refusals is None or len(watch.refusals) == refusals, watch.refusals


def ask(page: Page, prompt: str) -> Locator:
    """Send a message; give the exchange that it opens."""
    page.get_by_role("textbox", name="Message").fill(prompt)
    page.get_by_role("textbox", name="Message").press("Enter")
    return page.get_by_role("log").get_by_role("article").last


def save_screenshot(page: Page, folder: Path, name: str) -> None:
    """Leave a picture for a person to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png", full_page=True)
