"""What one cluster had that the one it joined lacks. Pure; `Merger` asks."""

from exo.streams.ids import NodeId
from exo.streams.instances import Instance
from exo.streams.merges import Dropped
from exo.streams.models import ModelCard
from exo.streams.state import State


def find_cards(old: State, new: State) -> tuple[list[ModelCard], list[Dropped]]:
    """Give the custom cards to bring over, and those whose name stands for another model there."""
    missing = [card for model, card in old.cards.items() if model not in new.cards]
    clashing = [
        Dropped(kind="card", id=model, name=model, reason="the cluster has another card of this name")
        for model, card in old.cards.items()
        if model in new.cards and new.cards[model] != card
    ]
    return missing, clashing


def find_instances(old: State, new: State) -> tuple[list[Instance], list[Dropped]]:
    """Give the instances to bring over, and those that were removed there on purpose."""
    gone = {removed.id: removed.reason for removed in new.removed_instances}
    missing = [one for one in old.instances.values() if one.id not in new.instances]
    removed = [
        Dropped(kind="instance", id=one.id, name=one.model.model_id, reason=f"removed there: {gone[one.id]}")
        for one in missing
        if one.id in gone
    ]
    return [one for one in missing if one.id not in gone], removed


def find_keys(old: State, new: State) -> list[Dropped]:
    """Give the API keys that end: whom the cluster admits is for its own people to say."""
    reason = "keys are not brought over; `exo keys add` makes one here"
    return [
        Dropped(kind="key", id=key.id, name=key.name, reason=reason)
        for key in old.api_keys.values()
        if key.id not in new.api_keys
    ]


def find_tasks(old: State, new: State, *, gateway: NodeId) -> list[Dropped]:
    """Give the requests of a gateway that run no more and of which no end is known."""
    reason = "nothing there could go on with it"
    return [
        Dropped(kind="task", id=task.id, name=task.model, reason=reason)
        for task in old.tasks.values()
        if task.gateway == gateway and task.id not in new.tasks and new.ended_tasks.get(task.id) is None
    ]
