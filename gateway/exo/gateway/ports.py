"""What the gateway needs of its siblings, as protocols; `exo.ops.up` hands in what fulfils them.

`exo.services` has the real things: Projection, GaugeCache, placement and the catalogue.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from exo.streams.events import Recorded
from exo.streams.ids import CommandId, NodeId
from exo.streams.models import ModelCard
from exo.streams.placements import Preview
from exo.streams.state import Receipt, State
from exo.streams.telemetry import Sample


class StateSource(Protocol):
    """State as this node knows it."""

    @property
    def state(self) -> State: ...

    def on_event(self, listener: Callable[[Recorded, State], None]) -> Callable[[], None]:
        """Call `listener(recorded, state after it)` for each event; gives a function that ends it."""
        ...

    async def wait(self, predicate: Callable[[State], bool], *, timeout: float | None = None) -> State:
        """Wait until State is as wished; `TimeoutError` after `timeout` seconds."""
        ...

    async def answer(self, command: CommandId, *, timeout: float) -> Receipt:
        """Wait for the master's answer to a command; `TimeoutError` after `timeout` seconds."""
        ...

    async def caught_up(self, *, timeout: float | None = None) -> State:
        """Wait until the log as it stood at the start is folded; `TimeoutError` after `timeout` seconds."""
        ...


class GaugeSource(Protocol):
    """The newest sample of each gauge of each node."""

    def samples(self) -> Mapping[NodeId, Mapping[str, Sample]]: ...


class Placer(Protocol):
    """Where a model could go right now."""

    def previews(self, card: ModelCard, *, min_nodes: int = 1) -> list[Preview]:
        """Give every way with at least `min_nodes` nodes, and one refusal for each way that is closed."""
        ...


class Catalog(Protocol):
    """All models that can be named."""

    def find(self, name: str) -> ModelCard | None:
        """Give the card of a model id or of an alias."""
        ...

    def all_cards(self) -> Iterable[ModelCard]: ...

    def suggest(self, name: str) -> list[str]:
        """Give the ids that look most like a name that is not known."""
        ...
