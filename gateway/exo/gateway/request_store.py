"""Where the body of each request of this gateway lies until it has ended: a message, or a blob when it is large.

Used by `submit`. The nodes read it; a resume needs only what `forget` keeps.
"""

from contextlib import suppress

import msgspec
import structlog

from exo.broker.blobs import Blobs
from exo.broker.bus import Bus
from exo.broker.errors import BrokerError, PayloadTooLargeError
from exo.streams import subjects
from exo.streams.codec import encode
from exo.streams.layout import BLOB_THRESHOLD, LARGEST_REQUEST
from exo.streams.requests import GenerationRequest, StoredRequest

log = structlog.get_logger(__name__)


class PreparedRequest(msgspec.Struct, frozen=True):
    """A request in the form it is stored in. `kept` is the record without its text, for `forget`."""

    body: bytes
    kept: StoredRequest

    @property
    def is_large(self) -> bool:
        """Whether the body lies in the object store, and only its name in the message."""
        return bool(self.kept.blob)


class RequestStore:
    """Stores requests and forgets their text."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._blobs = Blobs(bus)

    def prepare(self, stored: StoredRequest) -> PreparedRequest:
        """Encode a request; `PayloadTooLargeError` above `LARGEST_REQUEST`."""
        body = encode(stored)
        if len(body) > LARGEST_REQUEST:
            raise PayloadTooLargeError(len(body), limit=LARGEST_REQUEST)
        blob = f"requests/{stored.task}" if len(body) > BLOB_THRESHOLD else ""
        return PreparedRequest(body=body, kept=_strip(stored, blob=blob))

    async def write(self, prepared: PreparedRequest) -> None:
        """Store it; `StreamFullError` when there is no room."""
        subject = subjects.request(prepared.kept.task)
        if not prepared.is_large:
            await self._bus.append(subject, prepared.body)
            return
        await self._blobs.put(prepared.kept.blob, prepared.body)
        try:
            await self._bus.append(subject, encode(prepared.kept))
        except BaseException:
            with suppress(BrokerError):
                await self._blobs.delete(prepared.kept.blob)
            raise

    async def keep(self, kept: StoredRequest) -> None:
        """Store what a resume needs, in place of the text if that is there. `kept` is what `prepare` gave."""
        # One message per subject, so the old one is gone.
        await self._bus.append(subjects.request(kept.task), encode(_strip(kept)))

    async def forget(self, kept: StoredRequest) -> None:
        """Leave what a resume needs in place of the text; never raises. `kept` is what `prepare` gave."""
        try:
            await self.keep(kept)
            if kept.blob:
                await self._blobs.delete(kept.blob)
        except BrokerError as error:
            log.info("the text of a request stays stored until it expires", task=kept.task, error=str(error))


def _strip(stored: StoredRequest, *, blob: str = "") -> StoredRequest:
    """Give the same record without the prompt."""
    request = GenerationRequest(model=stored.request.model)
    return StoredRequest(task=stored.task, request=request, resume=stored.resume, blob=blob)
