"""The object store for bodies too large for one message, in the format of NATS ADR-20.

Used by the gateway (writing) and the nodes (reading) above `layout.BLOB_THRESHOLD`. Written over the
`Bus` port: nats-py's own store needs a second for what direct get reads in 30 ms.
"""

import base64
import hashlib
from contextlib import suppress
from typing import Final

import msgspec

from exo.broker.bus import Bus, Headers
from exo.broker.errors import BrokerError, NotFoundError, PayloadTooLargeError
from exo.streams.ids import new_boot_id
from exo.streams.layout import BLOBS, MIB, ObjectStoreSpec

CHUNK: Final = MIB
"""Bytes per message; readers take any size from the description."""

LARGEST: Final = 256 * MIB
_ROLLUP: Final[Headers] = {"Nats-Rollup": "sub"}


class _Options(msgspec.Struct, frozen=True):
    max_chunk_size: int


class Blob(msgspec.Struct, frozen=True, kw_only=True):
    """The description of an object, as ADR-20 spells it. `size` in bytes, `digest` is `SHA-256=<base64url>`."""

    name: str
    bucket: str
    nuid: str
    size: int
    chunks: int
    digest: str
    options: _Options
    deleted: bool = False


class Blobs:
    """Named byte strings, forgotten after `spec.max_age`."""

    def __init__(self, bus: Bus, spec: ObjectStoreSpec = BLOBS) -> None:
        self._bus = bus
        self._name = spec.name
        self._stream = f"OBJ_{spec.name}"

    async def put(self, name: str, body: bytes) -> Blob:
        """Store a body under a new name: readers see all of it or nothing, and a failure leaves nothing behind.

        `PayloadTooLargeError` above 256 MiB, `StreamFullError` when there is no room.
        """
        if len(body) > LARGEST:
            raise PayloadTooLargeError(len(body), limit=LARGEST)
        blob = Blob(
            name=name,
            bucket=self._name,
            nuid=new_boot_id(),
            size=len(body),
            chunks=-(-len(body) // CHUNK),
            digest=_digest(body),
            options=_Options(CHUNK),
        )
        try:
            for start in range(0, len(body), CHUNK):
                await self._bus.append(self._chunks(blob.nuid), body[start : start + CHUNK])
            await self._bus.append(self._description(name), msgspec.json.encode(blob), headers=_ROLLUP)
        except BaseException:
            with suppress(BrokerError):
                await self._erase(blob)
            raise
        return blob

    async def get(self, name: str) -> bytes:
        """Give a body; `NotFoundError` when there is none, `BrokerError` when it is damaged."""
        blob = await self._describe(name)
        pieces = await self._bus.read(self._stream, self._chunks(blob.nuid), limit=max(blob.chunks, 1))
        body = b"".join(piece.payload for piece in pieces)
        if len(body) != blob.size or _digest(body) != blob.digest:
            raise BrokerError(f"object {name} is damaged: {len(body)} of {blob.size} bytes are left or they differ")
        return body

    async def delete(self, name: str) -> None:
        """Forget a body; without effect when there is none."""
        try:
            blob = await self._describe(name)
        except NotFoundError:
            return
        await self._erase(blob)

    async def _erase(self, blob: Blob) -> None:
        await self._bus.purge(self._stream, subject=self._description(blob.name))
        await self._bus.purge(self._stream, subject=self._chunks(blob.nuid))

    async def _describe(self, name: str) -> Blob:
        last = await self._bus.get_last(self._stream, self._description(name))
        if last is None:
            raise NotFoundError(f"no object {name}")
        blob = msgspec.json.decode(last.payload, type=Blob)
        if blob.deleted:
            raise NotFoundError(f"object {name} was deleted")
        return blob

    def _chunks(self, nuid: str) -> str:
        return f"$O.{self._name}.C.{nuid}"

    def _description(self, name: str) -> str:
        return f"$O.{self._name}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _digest(body: bytes) -> str:
    return "SHA-256=" + base64.urlsafe_b64encode(hashlib.sha256(body).digest()).decode()
