"""What this node's former cluster had and the one it joined lacks: brought over, or said to be dropped.

Runs on every node. Its commands carry ids that every node of the former cluster draws alike, so that
they act once; the answer to each is the same for all who ask.
"""

import asyncio
import hashlib
from collections.abc import Callable

import structlog

from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError, StreamFullError
from exo.services.clock import Clock
from exo.services.journal import Journal
from exo.services.losses import find_cards, find_instances, find_keys, find_tasks
from exo.services.projection import Projection
from exo.streams.codec import encode
from exo.streams.codes import Code
from exo.streams.commands import AddModelCard, Command, CreateInstance, subject_of_command
from exo.streams.envelope import headers_of_fact
from exo.streams.events import SessionMerged
from exo.streams.ids import CommandId, NodeId, SessionId, TaskId
from exo.streams.instances import Instance
from exo.streams.merges import Dropped
from exo.streams.models import ModelCard
from exo.streams.state import State
from exo.streams.views import is_adoptable, is_descendant

log = structlog.get_logger(__name__)

NODES_PATIENCE = 15.0
"""Seconds for the nodes of an instance to join and to report that its runners live."""
TASKS_PATIENCE = 15.0
"""Seconds, after the instances are there, for the gateways to submit what ran on them."""
_ANSWER_TIMEOUT = 10.0
_TRIES = 3
_RETRY = 0.5


class Merger:
    """Brings over what is worth it. `has_ended` tells requests that ended here without the log knowing."""

    def __init__(
        self,
        bus: Bus,
        *,
        projection: Projection,
        journal: Journal,
        node: NodeId,
        clock: Clock,
        has_ended: Callable[[TaskId], bool],
    ) -> None:
        self._bus = bus
        self._projection = projection
        self._journal = journal
        self._node = node
        self._clock = clock
        self._has_ended = has_ended
        self._queue: asyncio.Queue[State] = asyncio.Queue()
        projection.on_session(self._notice)

    def _notice(self, old: State, new: State) -> None:
        if not is_descendant(new, old.session):
            log.warning("this node's cluster has joined another one", session=new.session, before=old.session)
            self._queue.put_nowait(old)

    async def run(self) -> None:
        """Bring over one former cluster after the other, until cancelled."""
        while True:
            await self._merge(await self._queue.get())

    async def _merge(self, old: State) -> None:
        new = self._projection.state
        cards, clashing = find_cards(old, new)
        instances, removed = find_instances(old, new)
        outcomes = await asyncio.gather(*(self._add_card(card, old.session) for card in cards))
        # Afterwards: an instance of a custom model needs its card.
        outcomes += await asyncio.gather(*(self._adopt(instance, old) for instance in instances))
        adopted = tuple(outcome for outcome in outcomes if isinstance(outcome, str))
        refused = tuple(outcome for outcome in outcomes if isinstance(outcome, Dropped))
        dropped = (*clashing, *removed, *find_keys(old, new), *refused)
        self._report(old.session, adopted=adopted, dropped=dropped)
        await self._watch_tasks(old)

    async def _watch_tasks(self, old: State) -> None:
        """Say which requests of this node's gateway nobody went on with."""

        def find_lost(state: State) -> tuple[Dropped, ...]:
            lost = find_tasks(old, state, gateway=self._node)
            return tuple(item for item in lost if not self._has_ended(TaskId(item.id)))

        try:
            await self._projection.wait(lambda state: not find_lost(state), timeout=TASKS_PATIENCE)
        except TimeoutError:
            self._report(old.session, adopted=(), dropped=find_lost(self._projection.state))

    def _report(self, session: SessionId, *, adopted: tuple[str, ...], dropped: tuple[Dropped, ...]) -> None:
        log.info("a merge", before=session, adopted=len(adopted), dropped=len(dropped))
        for item in dropped:
            log.warning("a merge dropped something", kind=item.kind, id=item.id, name=item.name, reason=item.reason)
        self._journal.record(SessionMerged(node=self._node, session=session, adopted=adopted, dropped=dropped))

    async def _add_card(self, card: ModelCard, session: SessionId) -> str | Dropped:
        reason = await self._ask(
            lambda identifier, now: AddModelCard(command_id=identifier, issued_at=now, card=card),
            session=session,
            about=f"card {card.model_id}",
        )
        return Dropped(kind="card", id=card.model_id, name=card.model_id, reason=reason) if reason else card.model_id

    async def _adopt(self, instance: Instance, old: State) -> str | Dropped:
        await self._wait_for_nodes(instance, old)
        reason = await self._ask(
            lambda identifier, now: CreateInstance(command_id=identifier, issued_at=now, instance=instance),
            session=old.session,
            about=f"instance {instance.id}",
        )
        if not reason:
            return instance.id
        return Dropped(kind="instance", id=instance.id, name=instance.model.model_id, reason=reason)

    async def _wait_for_nodes(self, instance: Instance, old: State) -> None:
        """Until its runners are known to live, or to have ended with their node's process life."""

        def is_known(state: State) -> bool:
            is_settled = instance.id in state.instances or is_adoptable(state, instance)
            return is_settled or all(_is_restarted(shard.node, old, state) for shard in instance.shards)

        try:
            await self._projection.wait(is_known, timeout=NODES_PATIENCE)
        except TimeoutError:
            log.info("an instance is brought over without its runners", instance=instance.id)

    async def _ask(self, make: Callable[[CommandId, int], Command], *, session: SessionId, about: str) -> str:
        """Give the reason of a refusal, empty when the command was accepted. What passes is asked again."""
        reason = "no master answered in time"
        for attempt in range(_TRIES):
            digest = hashlib.sha256(f"{about} {attempt}".encode()).hexdigest()[:24]
            identifier = CommandId(f"merge-{session}-{digest}")
            command = make(identifier, self._clock.now())
            try:
                await self._bus.append(
                    subject_of_command(command), encode(command), headers=headers_of_fact(identifier)
                )
                receipt = await self._projection.answer(identifier, timeout=_ANSWER_TIMEOUT)
            except (BusUnavailableError, StreamFullError, TimeoutError) as error:
                log.info("a merge has no answer yet", about=about, reason=str(error) or "timeout")
                await self._clock.sleep(_RETRY)
                continue
            if receipt.outcome == "accepted":
                return ""
            reason = receipt.reason
            if receipt.code not in {Code.MEMORY_UNKNOWN, Code.COMMAND_EXPIRED}:
                return reason
            await self._clock.sleep(_RETRY)
        return reason


def _is_restarted(node: NodeId, old: State, new: State) -> bool:
    before, now = old.nodes.get(node), new.nodes.get(node)
    return now is not None and now.online and (before is None or before.boot != now.boot)
