"""Models: the list that clients choose from, in OpenAI's shape with upstream's keys."""

from time import time
from typing import Annotated

from litestar import get
from litestar.params import FromPath, QueryParameter

from exo.gateway.availability import is_running, require_known
from exo.gateway.gateway import Here
from exo.gateway.wire.models import ModelEntry, ModelList, entry_of
from exo.streams.models import ModelCard
from exo.streams.state import State
from exo.streams.views import instances_of, nodes_holding

Status = Annotated[str, QueryParameter(description="`downloaded` or `running`; anything else lists all")]


@get(["/v1/models", "/models"], summary="All known models")
async def list_models(gateway: Here, status: Status = "") -> ModelList:
    """Every model that can be named, running or not; `status` of an entry says how far it is."""
    state = gateway.state
    cards = [card for _, card in sorted(gateway.catalog.cards(state).items())]
    if status == "downloaded":
        cards = [card for card in cards if nodes_holding(state, card.model_id)]
    elif status == "running":
        cards = [card for card in cards if is_running(state, card.model_id)]
    return ModelList(data=tuple(describe_model(state, card) for card in cards))


@get("/v1/models/{model_id:path}", summary="One model")
async def get_model(gateway: Here, model_id: FromPath[str]) -> ModelEntry:
    """By id or alias; 404 with suggestions when it is not known."""
    state = gateway.state
    return describe_model(state, require_known(state, gateway.catalog, model_id.lstrip("/")))


def describe_model(state: State, card: ModelCard) -> ModelEntry:
    """Give the entry of a model: `running`, `loading`, `downloaded` or `known`."""
    placed = instances_of(state, card.model_id)
    if is_running(state, card.model_id):
        status = "running"
    elif placed:
        status = "loading"
    else:
        status = "downloaded" if nodes_holding(state, card.model_id) else "known"
    return entry_of(card, created=int(time()), status=status, instances=tuple(instance.id for instance in placed))
