"""Where the body of each request of this gateway lies until it has ended: a message, or a blob when it is large.

Used by `submit`. The nodes read it; a resume needs only what `forget` keeps.
"""

from contextlib import suppress

import structlog

from exo.broker.blobs import Blobs
from exo.broker.bus import Bus
from exo.broker.errors import BrokerError, PayloadTooLargeError
from exo.streams import subjects
from exo.streams.codec import encode
from exo.streams.layout import BLOB_THRESHOLD, LARGEST_REQUEST
from exo.streams.requests import GenerationRequest, StoredRequest

log = structlog.get_logger(__name__)


class RequestStore:
    """Stores requests and forgets their text."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._blobs = Blobs(bus)

    async def put(self, stored: StoredRequest) -> tuple[StoredRequest, int]:
        """Store a request; gives the record without its text, for `forget`, and its size in bytes.

        `PayloadTooLargeError` above `LARGEST_REQUEST`, `StreamFullError` when there is no room.
        """
        body = encode(stored)
        if len(body) > LARGEST_REQUEST:
            raise PayloadTooLargeError(len(body), limit=LARGEST_REQUEST)
        if len(body) <= BLOB_THRESHOLD:
            await self._bus.append(subjects.request(stored.task), body)
            return _strip(stored), len(body)
        reference = _strip(stored, blob=f"requests/{stored.task}")
        await self._blobs.put(reference.blob, body)
        try:
            await self._bus.append(subjects.request(stored.task), encode(reference))
        except BaseException:
            with suppress(BrokerError):
                await self._blobs.delete(reference.blob)
            raise
        return reference, len(body)

    async def forget(self, kept: StoredRequest) -> None:
        """Leave what a resume needs in place of the text; never raises. `kept` is what `put` gave."""
        try:
            # One message per subject, so the old one is gone.
            await self._bus.append(subjects.request(kept.task), encode(_strip(kept)))
            if kept.blob:
                await self._blobs.delete(kept.blob)
        except BrokerError as error:
            log.info("the text of a request stays stored until it expires", task=kept.task, error=str(error))


def _strip(stored: StoredRequest, *, blob: str = "") -> StoredRequest:
    """Give the same record without the prompt."""
    request = GenerationRequest(model=stored.request.model)
    return StoredRequest(task=stored.task, request=request, resume=stored.resume, blob=blob)
