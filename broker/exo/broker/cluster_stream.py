"""One TLS connection of the cluster port, seen as frames. Who is at the other end is not its business.

Opened by `dial` or by `cluster_port.py`; greeted by `greeting.py`.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from typing import Final, cast

from exo.broker.addresses import Address, plain_host
from exo.broker.cluster_frames import MAX_FRAME, PREFIX, Frame, FrameError, KnownFrame, decode_frame, encode_frame
from exo.broker.name_lookups import NameLookups

CONNECT_TIMEOUT: Final = 3.0
HANDSHAKE_TIMEOUT: Final = 5.0
"""Seconds for TLS, and again for the greeting."""

MAX_BACKLOG: Final = 256 * 1024
"""Bytes that may wait for a peer which does not read."""


class OversizedError(FrameError):
    """Raised for a frame over the limit; nothing of it was read."""


class Stream:
    """Frames in and out. Every method but `close` may raise `OSError`; `read` also `FrameError` and `EOFError`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.remote: str = plain_host(_address_of(writer, "peername"))
        self.local: str = plain_host(_address_of(writer, "sockname"))
        self.closed = False

    @property
    def server_fingerprint(self) -> bytes:
        """The SHA-256 of the certificate that the other end showed; empty at the server's end."""
        shown = cast("ssl.SSLObject", self._writer.get_extra_info("ssl_object")).getpeercert(binary_form=True)
        return sha256(shown).digest() if shown else b""

    async def read_body(self) -> bytes:
        """Give the next frame undecoded."""
        size = int.from_bytes(await self._reader.readexactly(PREFIX), "big")
        if size > MAX_FRAME:
            raise OversizedError(f"a frame of {size} bytes is over the limit of {MAX_FRAME}")
        return await self._reader.readexactly(size)

    async def read(self) -> Frame:
        """Give the next frame."""
        return decode_frame(await self.read_body())

    def write(self, frame: bytes) -> bool:
        """Send an encoded frame, unless the other end has stopped reading; tells whether it was sent."""
        transport = self._writer.transport
        if self.closed or transport.is_closing() or transport.get_write_buffer_size() > MAX_BACKLOG:
            return False
        self._writer.write(frame)
        return True

    async def send(self, frame: KnownFrame) -> None:
        """Send a frame and wait while too much is on its way."""
        self._writer.write(encode_frame(frame))
        await self._writer.drain()

    def abort(self) -> None:
        """Cut the connection now; what is buffered is lost."""
        self.closed = True
        self._writer.transport.abort()

    async def close(self, *, timeout: float = 0.5) -> None:
        """Let what was written go out, then cut; safe to call twice."""
        if not self.closed:
            self.closed = True
            self._writer.close()
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._writer.wait_closed()
        self._writer.transport.abort()


async def wrap_accepted(connection: socket.socket, context: ssl.SSLContext) -> Stream:
    """Do the server's side of TLS on an accepted socket, or raise `OSError` (`ssl.SSLError`, `TimeoutError`)."""
    protocol, reader = _make_protocol()
    with _closing_on_error(connection):
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, connection, ssl=context
            )
    return _make_stream(transport, protocol, reader)


@asynccontextmanager
async def dial(address: Address, context: ssl.SSLContext, *, lookups: NameLookups) -> AsyncGenerator[Stream]:
    """Connect and do the client's side of TLS; whatever happens, the connection is gone at the end.

    Raises `OSError`: `socket.gaierror` for a name that is not known, `TimeoutError` with a text that
    says how far it got, `ssl.SSLError`.
    """
    protocol, reader = _make_protocol()
    connection = await _connect(address, lookups)
    with _closing_on_error(connection):
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT):
                transport, _ = await asyncio.get_running_loop().create_connection(
                    lambda: protocol, sock=connection, ssl=context, server_hostname="exo"
                )
        except TimeoutError as error:
            raise TimeoutError(f"the port is open but nobody speaks TLS within {HANDSHAKE_TIMEOUT:g} s") from error
    stream = _make_stream(transport, protocol, reader)
    try:
        yield stream
    finally:
        await stream.close()


async def _connect(address: Address, lookups: NameLookups) -> socket.socket:
    """Try every IP address that the host has; the last failure is raised."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{address.host} has no address")
    for family, where in await lookups.find(address):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            with _closing_on_error(connection):
                connection.setblocking(False)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await loop.sock_connect(connection, where)
        except TimeoutError:
            failure = TimeoutError(f"no answer within {CONNECT_TIMEOUT:g} s")
        except OSError as error:
            failure = error
        else:
            return connection
    raise failure


def _make_protocol() -> tuple[asyncio.StreamReaderProtocol, asyncio.StreamReader]:
    reader = asyncio.StreamReader(limit=2 * MAX_FRAME)
    return asyncio.StreamReaderProtocol(reader), reader


def _make_stream(
    transport: asyncio.BaseTransport, protocol: asyncio.StreamReaderProtocol, reader: asyncio.StreamReader
) -> Stream:
    loop = asyncio.get_running_loop()
    return Stream(reader, asyncio.StreamWriter(cast("asyncio.WriteTransport", transport), protocol, reader, loop))


@contextmanager
def _closing_on_error(connection: socket.socket) -> Generator[None]:
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _address_of(writer: asyncio.StreamWriter, kind: str) -> str:
    return str(writer.get_extra_info(kind, ("", 0))[0])
