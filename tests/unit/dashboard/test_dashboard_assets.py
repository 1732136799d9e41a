"""Which file a URL path names, what the browser is told about it, and what no path can reach."""

from pathlib import Path

import pytest

from exo.dashboard import find_asset
from exo.dashboard.assets import CONTENT_SECURITY_POLICY


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A static folder beside a file that nobody may read."""
    (tmp_path / "secret.js").write_text("secret")
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<title>exo</title>")
    (static / "assets" / "index-abc123.js").write_text("run()")
    (static / "assets" / "index-abc123.css").write_text("a{}")
    (static / "favicon.svg").write_text("<svg/>")
    (static / ".hidden.js").write_text("hidden")
    (static / "notes.exe").write_text("unknown kind")
    return static


@pytest.mark.parametrize("path", ["", "/", "/index.html", "index.html"])
def test_the_root_is_the_page_and_is_asked_for_again_each_time(built: Path, path: str) -> None:
    page = find_asset(path, folder=built)
    assert page is not None
    assert page.status == 200
    assert page.body == b"<title>exo</title>"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.headers["cache-control"] == "no-cache"


def test_a_file_whose_name_holds_its_hash_is_kept_for_ever(built: Path) -> None:
    script = find_asset("/assets/index-abc123.js", folder=built)
    assert script is not None
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in script.headers["cache-control"]


def test_a_file_that_keeps_its_name_is_not(built: Path) -> None:
    icon = find_asset("/favicon.svg", folder=built)
    assert icon is not None
    assert icon.headers["content-type"] == "image/svg+xml"
    assert icon.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.js",
        "/assets/../../secret.js",
        "/./index.html",
        "//../secret.js",
        "/..%2fsecret.js",
        "/..\\secret.js",
        "/.hidden.js",
        "/assets",
        "/assets/",
        "/notes.exe",
        "/absent.js",
        "/index.html\x00.js",
        "/index.html\n",
        "/" + "a" * 5000 + ".js",
        "/a/b/c/d/e/f.js",
        "/index.html/x.js",
    ],
)
def test_nothing_else_is_found(built: Path, path: str) -> None:
    assert find_asset(path, folder=built) is None


def test_an_absolute_path_stays_inside(built: Path) -> None:
    assert find_asset(str(built.parent / "secret.js"), folder=built) is None


def test_an_unbuilt_dashboard_says_how_to_build_it(tmp_path: Path) -> None:
    page = find_asset("/", folder=tmp_path / "static")
    assert page is not None
    assert page.status == 503
    assert b"make dashboard" in page.body
    assert page.headers["cache-control"] == "no-store"
    # The policy below would block them.
    assert b"<script" not in page.body
    assert b"style" not in page.body


def test_the_policy_lets_nothing_in_from_elsewhere(built: Path) -> None:
    page = find_asset("/", folder=built)
    assert page is not None
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert "default-src 'self'" in CONTENT_SECURITY_POLICY
    assert "unsafe" not in CONTENT_SECURITY_POLICY
    assert "http" not in CONTENT_SECURITY_POLICY
    assert "*" not in CONTENT_SECURITY_POLICY
