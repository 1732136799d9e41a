"""All routes of the app."""

from typing import Final

from litestar.handlers import HTTPRouteHandler

from exo.gateway.routes import (
    awaiting,
    chat,
    cluster,
    commands,
    events,
    health,
    imports,
    instances,
    models,
    pages,
    previews,
    requests,
    state,
    unbuilt,
)

HANDLERS: Final[tuple[HTTPRouteHandler, ...]] = (
    chat.complete_chat,
    requests.resume_stream,
    commands.get_command,
    commands.cancel_request,
    models.list_models,
    models.get_model,
    imports.add_model,
    imports.import_model,
    imports.delete_custom_model,
    imports.delete_model,
    instances.list_instances,
    instances.get_instance,
    instances.create_instance,
    instances.place_instance,
    instances.delete_instance,
    previews.list_previews,
    previews.get_placement,
    awaiting.await_instance,
    cluster.get_node_id,
    cluster.get_feature_flags,
    cluster.list_instance_links,
    cluster.get_onboarding,
    cluster.complete_onboarding,
    state.get_state,
    state.get_state_part,
    events.get_events,
    health.get_health,
    health.get_ready,
    health.get_metrics,
    pages.get_docs,
    pages.get_openapi,
    pages.get_page,
    pages.refuse_unknown,
    *unbuilt.UNBUILT_HANDLERS,
)
