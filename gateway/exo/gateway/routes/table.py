"""All routes of the app, by the scope that an API key needs for them.

A route in no group cannot be reached: what the app serves is built from here.
"""

from typing import Final

from litestar.handlers import HTTPRouteHandler

from exo.gateway.api_keys import NEEDS
from exo.gateway.routes import (
    awaiting,
    chat,
    cluster,
    commands,
    events,
    health,
    imports,
    instances,
    keys,
    models,
    nodes,
    pages,
    previews,
    rekey,
    requests,
    state,
    unbuilt,
)
from exo.streams.keys import Scope

Needs = frozenset[Scope]

OPEN: Final[Needs] = frozenset()
INFER: Final[Needs] = frozenset({"infer"})
READ: Final[Needs] = frozenset({"read"})
EITHER: Final[Needs] = frozenset({"infer", "read"})
ADMIN: Final[Needs] = frozenset({"admin"})

ROUTES: Final[dict[Needs, tuple[HTTPRouteHandler, ...]]] = {
    INFER: (
        chat.complete_chat,
        requests.resume_stream,
        commands.cancel_request,
    ),
    EITHER: (
        models.list_models,
        models.get_model,
        awaiting.await_instance,
        commands.get_command,
        *unbuilt.UNBUILT_HANDLERS,
    ),
    READ: (
        instances.list_instances,
        instances.get_instance,
        previews.list_previews,
        previews.get_placement,
        state.get_state,
        state.get_topology,
        state.get_state_part,
        events.get_events,
        health.get_metrics,
        cluster.get_cluster,
        cluster.get_node_id,
        cluster.get_feature_flags,
        cluster.list_instance_links,
        cluster.get_onboarding,
        cluster.complete_onboarding,
    ),
    ADMIN: (
        instances.create_instance,
        instances.place_instance,
        instances.delete_instance,
        imports.add_model,
        imports.import_model,
        imports.delete_custom_model,
        imports.delete_model,
        rekey.rekey_cluster,
        nodes.drain_node,
        nodes.undo_drain,
        keys.list_keys,
        keys.add_key,
        keys.revoke_key,
    ),
    OPEN: (
        health.get_health,
        health.get_ready,
        pages.get_docs,
        pages.get_openapi,
        pages.get_page,
        pages.refuse_unknown,
    ),
}
"""One of a group's scopes is enough; `admin` is always. The page of the dashboard is open, what it reads is not."""


def _label(handler: HTTPRouteHandler, needs: Needs) -> HTTPRouteHandler:
    """Write on a route what it needs, where `admission_guard` reads it."""
    handler.opt[NEEDS] = needs
    return handler


HANDLERS: Final[tuple[HTTPRouteHandler, ...]] = tuple(
    _label(handler, needs) for needs, group in ROUTES.items() for handler in group
)
