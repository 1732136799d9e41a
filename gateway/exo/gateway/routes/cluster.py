"""Facts about this node and its small switches."""

from pathlib import Path
from typing import Any

import msgspec
from litestar import get, post
from litestar.types import ASGIApp

from exo.gateway.gateway import Here
from exo.gateway.responses import json_response
from exo.streams.merges import Merge


class Onboarding(msgspec.Struct, frozen=True):
    """Whether somebody has seen the first-run tour on this node."""

    completed: bool


class FeatureFlags(msgspec.Struct, frozen=True):
    """Features that can be switched on; none of them is built yet."""

    disaggregation: bool


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """`report` is this node's own view; `merges`, on which all agree, what was dropped when clusters became one."""

    report: dict[str, Any]
    merges: tuple[Merge, ...]


@get("/v1/cluster", summary="How this node stands with the others")
async def get_cluster(gateway: Here) -> ASGIApp:
    """Who is hub and why, which nodes are reached or not and why, what is wrong and what to do; and past merges."""
    return json_response({"report": gateway.cluster.report(), "merges": gateway.state.merges})


@get("/node_id", summary="The id of this node")
async def get_node_id(gateway: Here) -> ASGIApp:
    """A JSON string. The node that answers, not the master."""
    return json_response(gateway.node.id)


@get("/v1/feature-flags", summary="Features of this version")
async def get_feature_flags() -> FeatureFlags:
    """Which optional features are on."""
    return FeatureFlags(disaggregation=False)


@get("/v1/instance-links", summary="Links between prefill and decode instances")
async def list_instance_links() -> list[dict[str, Any]]:
    """Always empty: this version has no such links."""
    return []


@get("/onboarding", summary="Whether the tour was seen")
async def get_onboarding(gateway: Here) -> Onboarding:
    """Kept per node."""
    file = gateway.settings.onboarding_file
    return Onboarding(completed=gateway.onboarded or (file is not None and file.exists()))


@post("/onboarding", status_code=200, summary="Note that the tour was seen")
async def complete_onboarding(gateway: Here) -> Onboarding:
    """Remembered over restarts when the node has a place for it."""
    gateway.onboarded = True
    if gateway.settings.onboarding_file is not None:
        _touch(gateway.settings.onboarding_file)
    return Onboarding(completed=True)


def _touch(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
