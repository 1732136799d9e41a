"""What the gateway needs of its siblings, as protocols; `exo.ops.up` hands in what fulfils them.

`exo.services` has the real things: Projection, Gauges, placement and the Catalog.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from exo.streams.events import Recorded
from exo.streams.ids import CommandId, ModelId, NodeId, TaskId
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

    def on_session(self, listener: Callable[[State, State], None]) -> Callable[[], None]:
        """Call `listener(old, new)` when State is of another session; gives a function that ends it.

        `old` is State when its session ended, `new` holds all that stood in the new one's log at first sight.
        """
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


class Rekeyed(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the cluster is closed from now on, and where its secret was found: a file or a variable."""

    closed: bool
    origin: str = ""


class ClusterSource(Protocol):
    """How this node stands with the others: who is hub and why, whom it reaches, what is wrong."""

    @property
    def hub(self) -> NodeId:
        """The node whose message broker all use; empty when this node knows of none."""
        ...

    def report(self) -> msgspec.Struct:
        """Give what a person should see of it now; quick, and never raises."""
        ...

    async def rekey(self) -> Rekeyed:
        """Use the secret that can be read now, or none; `GatewayError` when what is there is none."""
        ...

    def explain(self) -> str:
        """Say in half a sentence who is hub, or who was and what is happening."""
        ...

    def explain_full(self) -> str:
        """Say why the broker's store takes nothing new; empty when it does."""
        ...


class LocalTasks(Protocol):
    """Requests at work on this node."""

    async def cancel_task(self, task: TaskId, *, reason: str) -> bool:
        """Drop a request of a runner of this node without asking the master; gives whether it was here."""
        ...


class GaugeReading(Protocol):
    """A sample as this node received it."""

    @property
    def node(self) -> NodeId: ...
    @property
    def name(self) -> str: ...
    @property
    def sample(self) -> Sample: ...


Reading = TypeVar("Reading", bound=GaugeReading)


class GaugeSource(Protocol[Reading]):
    """The newest reading of each gauge of each node."""

    def samples(self) -> list[Reading]: ...

    def age(self, reading: Reading) -> float:
        """Seconds since a reading arrived here."""
        ...


class Placer(Protocol):
    """Where a model could go right now."""

    def previews(self, card: ModelCard, *, min_nodes: int = 1) -> list[Preview]:
        """Give every way with at least `min_nodes` nodes, and one refusal for each way that is closed."""
        ...


class Catalog(Protocol):
    """All models that can be named: built in, custom, or held by a node."""

    def cards(self, state: State) -> dict[ModelId, ModelCard]: ...

    def find_card(self, name: str, state: State) -> ModelCard | None:
        """Find a model by id or alias."""
        ...

    def suggest(self, name: str, state: State) -> tuple[ModelId, ...]:
        """Give the ids that look most like a name that was not found."""
        ...
