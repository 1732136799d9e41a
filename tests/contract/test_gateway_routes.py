"""Upstream's routes, one by one, and the document of ours, against golden files.

Each route of upstream is served, or says with 501 what is not built yet: none is a 404 by its path.
To accept a change on purpose, delete the golden file and run the test: it writes the new one and
fails once.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from exo.gateway.routes.unbuilt import UNBUILT
from support.fake_cluster import FakeCluster
from support.gateway import open_client

GOLDEN = Path(__file__).parent / "golden_gateway"
ROUTES = GOLDEN / "upstream_routes.txt"
UPSTREAM = [(method, path) for method, path in (line.split() for line in ROUTES.read_text().splitlines())]
OURS_UNBUILT = {"/v1/completions", "/v1/embeddings"}


def assert_golden(name: str, value: Any) -> None:
    golden = GOLDEN / name
    written = json.dumps(value, indent=1, sort_keys=True) + "\n"
    if not golden.exists():
        golden.write_text(written)
        pytest.fail(f"wrote {golden.name}: look at it and commit it")
    assert written == golden.read_text()


async def test_every_route_of_upstream_answers() -> None:
    answers: dict[str, Any] = {}
    async with FakeCluster().running() as cluster, open_client(cluster) as client:
        for method, path in UPSTREAM:
            answer = await client.request(method, path)
            answers[f"{method} {path}"] = answer.status_code
            if answer.status_code in {400, 404, 501} and method != "HEAD":
                error = answer.json()["error"]
                assert error["code"] != "not_found", path
                assert (error["code"] == "not_built") == (answer.status_code == 501), path
    # 503 is the page that says how to build the dashboard.
    assert answers.pop("GET /") in {200, 503}
    assert_golden("upstream_statuses.json", answers)


def test_nothing_is_listed_as_unbuilt_that_nobody_asks_for() -> None:
    listed = {(method, path.partition("/{")[0]) for path, methods, _ in UNBUILT for method in methods}
    asked = {(method, path.rstrip("/")) for method, path in UPSTREAM} | {("POST", path) for path in OURS_UNBUILT}
    assert {
        one for one in listed if not any(one[0] == method and path.startswith(one[1]) for method, path in asked)
    } == set()


async def test_the_document_changes_only_on_purpose() -> None:
    async with FakeCluster().running() as cluster, open_client(cluster) as client:
        document = (await client.get("/openapi.json")).json()
    assert_golden("openapi.json", document)
