"""Whether a model can answer right now, and if not, what a person can do about it. Pure."""

from collections.abc import Iterable

from exo.gateway.errors import GatewayError
from exo.gateway.ports import Catalog
from exo.streams.codes import Code
from exo.streams.ids import InstanceId, ModelId
from exo.streams.instances import Loading
from exo.streams.models import ModelCard
from exo.streams.state import State
from exo.streams.views import failure_of, instances_of, is_ready, runners_of


def is_running(state: State, model: ModelId) -> bool:
    """Whether any instance of exactly this model is ready."""
    return any(is_ready(state, instance.id) for instance in instances_of(state, model))


def require_known(state: State, catalog: Catalog, name: str) -> ModelCard:
    """Give the card of a model by id or alias, or raise `model_not_found` with what may have been meant."""
    card = catalog.find_card(name, state)
    if card is None:
        hint = _hint(catalog.suggest(name, state))
        raise GatewayError(Code.MODEL_NOT_FOUND, f"The model {name!r} is not known.{hint}", param="model")
    return card


def _hint(names: Iterable[str]) -> str:
    listed = ", ".join(names)
    return (
        f" Did you mean: {listed}?" if listed else " `exo models list` shows the known ones, as does `GET /v1/models`."
    )


def describe_unready(state: State, model: ModelId, *, asked: str) -> GatewayError:
    """Say why a known model cannot answer and what to do: it is loading, or nobody has placed it."""
    placed = instances_of(state, model)
    if placed:
        return GatewayError(
            Code.MODEL_LOADING,
            f"The model {asked!r} is being loaded ({describe_progress(state, placed[0].id)}). Try again shortly, "
            f"or wait with GET /instance/await?model_id={model}.",
            param="model",
        )
    return GatewayError(
        Code.MODEL_NOT_RUNNING,
        f"The model {asked!r} is known but not running. Start it with `exo place {model}` or "
        f'POST /place_instance {{"model_id": "{model}"}}, or run exo with --autoload.',
        param="model",
    )


def describe_progress(state: State, instance: InstanceId) -> str:
    """Say in words how far an instance is from serving."""
    failure = failure_of(state, instance)
    if failure is not None:
        return f"attempt {failure.attempt} failed: {failure.message}"
    for runner in runners_of(state, instance):
        if isinstance(runner.status, Loading):
            return f"{runner.status.layers_loaded} of {runner.status.total_layers} layers"
    statuses = {type(runner.status).__name__ for runner in runners_of(state, instance)}
    return ", ".join(sorted(statuses)).lower()


def find_instance_error(state: State, instance: InstanceId) -> GatewayError:
    """Say why an instance is gone; its reason is kept for a while after its removal."""
    for removed in reversed(state.removed_instances):
        if removed.id == instance:
            return GatewayError(removed.code, f"The instance was removed: {removed.reason}")
    return GatewayError(Code.INSTANCE_NOT_FOUND, f"The instance {instance} does not exist.")
