"""The models that exo knows by name: built-in cards, custom cards and what nodes hold on disk.

The master and the gateway resolve names here, as people type them. Reads its TOML files once; never
writes.
"""

import difflib
from functools import cache
from importlib.resources import files

import msgspec
from msgspec.structs import replace

from exo.streams.ids import ModelId
from exo.streams.models import ModelCard
from exo.streams.state import State
from exo.streams.views import known_cards

STARTER = "starter"
"""Alias of the small model that needs no account."""
_SUGGESTIONS = 3
_LIKENESS = 0.5


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    card: ModelCard
    aliases: tuple[str, ...] = ()


class Catalog:
    """A fixed set of built-in cards, merged with what State knows."""

    def __init__(self, cards: tuple[ModelCard, ...], *, aliases: dict[str, ModelId] | None = None) -> None:
        self._builtin = {card.model_id: card for card in cards}
        self._aliases = aliases or {}

    def cards(self, state: State) -> dict[ModelId, ModelCard]:
        """Give every card; what a node holds or a person wrote wins over what is built in."""
        return {**self._builtin, **{model: self._name(card) for model, card in known_cards(state).items()}}

    def _name(self, card: ModelCard) -> ModelCard:
        """Let a built-in model keep its names: those in an imported file are what its authors' tools left there."""
        builtin = self._builtin.get(card.model_id)
        if builtin is None or card.is_custom:
            return card
        return replace(card, name=builtin.name, family=builtin.family, base_model=builtin.base_model)

    def find_card(self, name: str, state: State) -> ModelCard | None:
        """Find a model by id, by alias, or by the part after `org/` when only one model has it; in any case."""
        cards = self.cards(state)
        exact = cards.get(ModelId(name))
        if exact is not None:
            return exact
        wanted = name.strip().lower()
        alias = self._aliases.get(wanted)
        if alias is not None:
            return cards.get(alias)
        matches = [card for model, card in cards.items() if wanted in {model.lower(), _short(model)}]
        return matches[0] if len(matches) == 1 else None

    def is_reserved(self, name: str) -> bool:
        """Whether a name means a built-in model that has no files: an imported one would hide it, or be hidden."""
        wanted = name.strip().lower()
        builtin = (model.lower() for model, card in self._builtin.items() if not card.storage_bytes)
        return wanted in self._aliases or wanted in builtin

    def suggest(self, name: str, state: State) -> tuple[ModelId, ...]:
        """Give the ids that look most like a name that was not found, best first."""
        spellings: dict[str, ModelId] = {}
        for model in self.cards(state):
            spellings[model.lower()] = spellings[_short(model)] = model
        spellings.update(self._aliases)
        close = difflib.get_close_matches(name.strip().lower(), spellings, n=2 * _SUGGESTIONS, cutoff=_LIKENESS)
        return tuple(dict.fromkeys(spellings[spelling] for spelling in close))[:_SUGGESTIONS]


def _short(model: str) -> str:
    return model.rsplit("/", 1)[-1].lower()


@cache
def load_catalog() -> Catalog:
    """Read the built-in cards."""
    folder = files("exo.services.catalog") / "cards"
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".toml"))
    entries = [msgspec.toml.decode((folder / name).read_bytes(), type=_Entry) for name in names]
    aliases = {alias: entry.card.model_id for entry in entries for alias in entry.aliases}
    return Catalog(tuple(entry.card for entry in entries), aliases=aliases)
