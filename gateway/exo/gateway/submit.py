"""Brings a request to a ready instance of its model and opens the relay that its answer comes on.

The chunks are subscribed to before the master hears of the task, so that nothing of the answer can
be missed.
"""

import asyncio
from time import monotonic, time
from typing import Any

from exo.broker.errors import BusUnavailableError
from exo.gateway.availability import describe_unready, find_instance_error, is_running, require_known
from exo.gateway.cancelling import Canceller
from exo.gateway.commands import SEND_TIMEOUT, Commander, now_ms
from exo.gateway.errors import GatewayError
from exo.gateway.hub import RelayHub, Spawn
from exo.gateway.outages import Outages
from exo.gateway.ports import Catalog, StateSource
from exo.gateway.relay import Relay
from exo.gateway.request_store import PreparedRequest, RequestStore
from exo.gateway.settings import GatewaySettings, NodeIdentity
from exo.gateway.submissions import Submissions
from exo.streams.codes import Code
from exo.streams.commands import PlaceInstance, SubmitTask
from exo.streams.ids import InstanceId, KeyId, ModelId, new_command_id, new_instance_id, new_task_id
from exo.streams.requests import Dialect, GenerationRequest, ResumeRecord, StoredRequest
from exo.streams.tasks import OnDisconnect

_RETRY = 0.2


_UNHEARD = frozenset({Code.MASTER_UNAVAILABLE, Code.BROKER_UNAVAILABLE})
"""The command may still be on its way."""


class Submitter:
    """Submits requests of this gateway."""

    def __init__(
        self,
        requests: RequestStore,
        states: StateSource,
        *,
        node: NodeIdentity,
        settings: GatewaySettings,
        catalog: Catalog,
        commander: Commander,
        outages: Outages,
        hub: RelayHub,
        submissions: Submissions,
        canceller: Canceller,
        spawn: Spawn,
    ) -> None:
        self._requests = requests
        self._states = states
        self._node = node
        self._settings = settings
        self._catalog = catalog
        self._commander = commander
        self._outages = outages
        self._hub = hub
        self._submissions = submissions
        self._canceller = canceller
        self._spawn = spawn

    async def submit(
        self,
        request: GenerationRequest,
        *,
        dialect: Dialect,
        stream: bool,
        options: dict[str, Any],
        on_disconnect: OnDisconnect,
        key: KeyId,
    ) -> tuple[Relay, StoredRequest]:
        """Store, subscribe, ask the master; once an instance has the task, gives the open relay.

        Beside it comes the stored request without its text, which is all that rendering needs.
        """
        await self._outages.wait_connected(timeout=self._settings.command_timeout)
        if (full := self._outages.find_full()) is not None:
            raise full
        model = await self._require_running(request.model)
        task = new_task_id()
        resume = ResumeRecord(dialect=dialect, created=int(time()), stream=stream, options=options, key=key)
        prepared = self._requests.prepare(StoredRequest(task=task, request=request, resume=resume))
        relay = await self._hub.open(task, cancels=on_disconnect == "cancel", keeper=self._submissions)
        command = SubmitTask(
            command_id=new_command_id(),
            issued_at=now_ms(),
            task=task,
            model=model,
            size=len(prepared.body),
            gateway=self._node.id,
            gateway_boot=self._node.boot,
            key=key,
            time_limit=int(self._settings.request_timeout * 1000),
            on_disconnect=on_disconnect,
        )
        submission = self._submissions.add(prepared, command)
        try:
            await self._store_and_ask(prepared, command)
        except BaseException as error:
            self._submissions.drop(task)
            self._hub.close(relay)
            refused = isinstance(error, GatewayError) and error.code not in _UNHEARD
            self._spawn(self._abandon(prepared.kept, cancel=not refused))
            raise
        self._submissions.note_assigned(submission)
        return relay, prepared.kept

    async def _store_and_ask(self, prepared: PreparedRequest, command: SubmitTask) -> None:
        """Store the body and ask the master in one go, which saves the client a round trip to the broker.

        A large body takes long to store and is there before the master hears of it. The nodes wait a
        moment for one that comes after its assignment.
        """
        if prepared.is_large:
            await self._write(prepared)
            await self._commander.execute(command)
            return
        outcomes = await asyncio.gather(self._write(prepared), self._commander.execute(command), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _write(self, prepared: PreparedRequest) -> None:
        """Store the body, again and again over a short loss of the broker."""
        deadline = monotonic() + self._settings.command_timeout
        while True:
            try:
                async with asyncio.timeout(None if prepared.is_large else SEND_TIMEOUT):
                    return await self._requests.write(prepared)
            except (BusUnavailableError, TimeoutError) as error:
                if (full := self._outages.find_full()) is not None:
                    raise full from error
                if monotonic() > deadline:
                    raise self._outages.describe() from error
                await asyncio.sleep(_RETRY)

    async def _abandon(self, kept: StoredRequest, *, cancel: bool) -> None:
        """Clean up after a request nobody waits for; a master that is late finds the tombstone."""
        if cancel:
            self._canceller.cancel_soon(kept.task, reason="the request was given up before it was assigned")
        await self._requests.forget(kept)

    async def _require_running(self, name: ModelId) -> ModelId:
        """Give the id of a model that is ready, by its id or an alias; with autoload, place it and wait."""
        state = self._states.state
        if is_running(state, name):
            return name
        model = require_known(state, self._catalog, name).model_id
        if not is_running(state, model):
            if not self._settings.autoload:
                raise describe_unready(state, model, asked=name)
            await self._await_ready(model, await self._load(model))
        return model

    async def _load(self, model: ModelId) -> InstanceId:
        command = PlaceInstance(
            command_id=new_command_id(),
            issued_at=now_ms(),
            instance=new_instance_id(),
            model=model,
            context_length=self._settings.context_length,
            only_if_absent=True,
        )
        receipt = await self._commander.execute(command)
        return InstanceId(receipt.subject_id)

    async def _await_ready(self, model: ModelId, instance: InstanceId) -> None:
        try:
            state = await self._states.wait(
                lambda state: is_running(state, model) or instance not in state.instances,
                timeout=self._settings.autoload_timeout,
            )
        except TimeoutError as error:
            raise describe_unready(self._states.state, model, asked=model) from error
        if not is_running(state, model):
            raise find_instance_error(state, instance)
