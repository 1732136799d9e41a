"""The bodies of requests: stored by a gateway, read here when a request was assigned."""

from collections.abc import Callable

from exo.broker.blobs import Blobs
from exo.broker.bus import Bus
from exo.broker.errors import BusUnavailableError
from exo.services.clock import Clock
from exo.streams import subjects
from exo.streams.codec import decode_stored_request
from exo.streams.ids import TaskId
from exo.streams.layout import REQUESTS
from exo.streams.requests import GenerationRequest, StoredRequest

_TRIES = 20
_PAUSE = 0.05
"""The gateway stores a body and asks the master at the same time: seconds between two looks for it."""
_RETRY = 0.2


class Bodies:
    """Reads for one worker. While `is_patient()`, a body that is missing may still be stored anew."""

    def __init__(self, bus: Bus, *, clock: Clock, is_patient: Callable[[], bool]) -> None:
        self._bus = bus
        self._blobs = Blobs(bus)
        self._clock = clock
        self._is_patient = is_patient

    async def fetch(self, task: TaskId) -> GenerationRequest | None:
        """Give the body, which may come a moment after the assignment; None when it does not.

        `BrokerError` and `CodecError` when it is there and cannot be read.
        """
        tries = 0
        while tries < _TRIES:
            try:
                stored = await self._read(task)
            except BusUnavailableError:
                await self._clock.sleep(_RETRY)
                continue
            if stored:
                return stored.request
            if not self._is_patient():
                tries += 1
            await self._clock.sleep(_PAUSE)
        return None

    async def _read(self, task: TaskId) -> StoredRequest | None:
        message = await self._bus.get_last(REQUESTS.name, subjects.request(task))
        stored = decode_stored_request(message.payload) if message else None
        if stored and stored.blob:
            return decode_stored_request(await self._blobs.get(stored.blob))
        return stored
