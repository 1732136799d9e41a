"""Speaks HTTP to a node: the only way in which commands ask for anything.

Used by the command line and by `exo up` for the models it was told to launch. Every refusal becomes
a `CommandError` with the server's own words and code, an absent node a `NoNodeError`.
"""

import ipaddress
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from exo.ops.errors import CommandError, NoNodeError, UsageError

T = TypeVar("T")

KEY_VARIABLE = "EXO_API_KEY"
_TIMEOUT = 30.0
"""Seconds for one answer; streams may be silent for as long as they like."""


class _Detail(msgspec.Struct, frozen=True):
    message: str
    code: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: _Detail


class NodeClient:
    """One connection pool to the API of one node. An async context manager."""

    def __init__(self, url: str, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self.url = url.rstrip("/")
        self._http = httpx2.AsyncClient(
            base_url=self.url,
            timeout=_TIMEOUT,
            headers=_key_headers(url),
            # A proxy of the environment is meant for the internet, not for a node on this machine.
            trust_env=not is_loopback(url),
            transport=transport,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def get(self, path: str, kind: type[T], *, params: Mapping[str, Any] | None = None) -> T:
        """Read a resource as the given type."""
        return _decode(await self._send("GET", path, params=params), kind)

    async def post(self, path: str, body: Any, kind: type[T], *, timeout: float | None = _TIMEOUT) -> T:
        """Ask for something; `timeout` None waits as long as it takes."""
        return _decode(await self._send("POST", path, body=body, timeout=timeout), kind)

    async def delete(self, path: str, kind: type[T]) -> T:
        """Remove a resource."""
        return _decode(await self._send("DELETE", path), kind)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, *, body: Any = None, params: Mapping[str, Any] | None = None
    ) -> AsyncGenerator[httpx2.EventSource]:
        """Open a stream of events. Leaving it early closes the connection, which cancels the work behind it."""
        timeout = httpx2.Timeout(_TIMEOUT, read=None)
        async with (
            self._reporting(),
            self._http.sse(path, method=method, json=body, params=params, timeout=timeout) as events,
        ):
            await _refuse(events.response)
            yield events

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = _TIMEOUT,
    ) -> bytes:
        async with self._reporting():
            response = await self._http.request(method, path, json=body, params=params, timeout=timeout)
            await _refuse(response)
            return response.content

    @asynccontextmanager
    async def _reporting(self) -> AsyncGenerator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            raise UsageError("what was typed or piped in is not UTF-8 text") from error
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise NoNodeError(
                f"no node answers at {self.url}", remedy="start one with `exo up`, or name another with --url"
            ) from error
        except httpx2.TimeoutException as error:
            raise CommandError(f"the node at {self.url} did not answer in time", remedy="ask `exo doctor`") from error
        except httpx2.TransportError as error:
            raise CommandError(f"the connection to {self.url} broke: {error}", remedy="ask `exo status`") from error


def _key_headers(url: str) -> dict[str, str]:
    """Another machine's API may ask for a key; one of this machine needs none, and may be of another cluster."""
    key = os.environ.get(KEY_VARIABLE, "")
    return {"Authorization": f"Bearer {key}"} if key and not is_loopback(url) else {}


def is_loopback(url: str) -> bool:
    """Whether an address is one of this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _refuse(response: httpx2.Response) -> None:
    if response.is_success:
        return
    body = await response.aread()
    try:
        detail = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.DecodeError:
        raise CommandError(f"the node answered {response.status_code} {response.reason_phrase}") from None
    remedy = f"set {KEY_VARIABLE} to one that is admitted" if detail.code == "unauthorized" else ""
    raise CommandError(detail.message.rstrip("."), code=detail.code or "", remedy=remedy)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise CommandError(
            f"the node's answer cannot be read: {error}", remedy="is it of another version? compare `exo --version`"
        ) from error
