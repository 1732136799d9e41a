"""Who is asking: API keys, and what they allow.

`admission_guard` runs before every handler of the app; each route says in `routes/table.py` which
scopes open it. Keys are known by their SHA-256 in State, so one that was added on any node is
admitted on all. A key's own text is seen here and in the answer that gave it out, and is never logged.
"""

import ipaddress
import secrets
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, cast, get_args

import msgspec
from litestar.connection import ASGIConnection
from litestar.handlers.base import BaseRouteHandler

from exo.gateway.errors import GatewayError
from exo.streams.codes import Code
from exo.streams.ids import KeyId, new_key_id
from exo.streams.keys import ApiKey, Scope
from exo.streams.state import State

PREFIX: Final = "exo-"
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
NEEDS: Final = "exo_scopes"
"""Under which a route's `opt` holds the scopes of which one is enough; an empty set opens it to everybody."""
_CALLER: Final = "exo.caller"
_BY_PROXY: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
_HOW: Final = "Send it as `Authorization: Bearer exo-...` or `x-api-key`."


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks. Without a key - from this machine, or where none is required - everything is allowed."""

    key: KeyId = KeyId("")
    scopes: tuple[Scope, ...] = ("admin",)

    def may(self, needs: frozenset[Scope]) -> bool:
        """Whether one of the scopes that are enough is the caller's."""
        return "admin" in self.scopes or not needs.isdisjoint(self.scopes)

    def owns(self, key: str) -> bool:
        """Whether what was asked for with `key` is the caller's to stop: its own, or anything for an administrator."""
        return key == self.key or "admin" in self.scopes


def draw_key(name: str, scopes: tuple[Scope, ...]) -> tuple[ApiKey, str]:
    """Draw a new key: its record, and the text that its owner sends, which is kept nowhere."""
    text = PREFIX + secrets.token_urlsafe(32)
    return ApiKey(id=new_key_id(), name=name, scopes=scopes, sha256=hash_key(text)), text


def hash_key(text: str) -> str:
    """Give what State knows a key by. Looking it up tells a guesser nothing: no comparison sees the key's text."""
    return sha256(text.encode()).hexdigest()


class KeyRing:
    """Finds keys by their text. `state` gives the newest State; the index is built anew when its keys change."""

    def __init__(self, state: Callable[[], State]) -> None:
        self._state = state
        self._indexed: Mapping[KeyId, ApiKey] = {}
        self._by_hash: dict[str, ApiKey] = {}

    def find(self, text: str) -> ApiKey | None:
        """Give the admitted key with this text; 503 before State was read."""
        state = self._state()
        if not state.session:
            raise GatewayError(Code.BROKER_UNAVAILABLE, "This node does not know the API keys yet: it is starting.")
        if state.api_keys is not self._indexed:
            self._indexed = state.api_keys
            self._by_hash = {key.sha256: key for key in state.api_keys.values()}
        return self._by_hash.get(hash_key(text))


def admission_guard(ring: KeyRing, *, keys_required: bool) -> Callable[[Any, Any], None]:
    """Give the guard of the app: 401 without an admitted key where one is required, 403 without the scope."""

    def admit(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        # A route that names no scope is an oversight: the safe side is that of administrators.
        needs: frozenset[Scope] = handler.opt.get(NEEDS, frozenset({"admin"}))
        if not needs or _scope_of(connection).get("method") == "OPTIONS":
            return
        required = keys_required and not is_local(connection)
        caller = identify(ring, read_key(connection.headers), required=required)
        if not caller.may(needs):
            wanted = " or ".join(scope for scope in SCOPES if scope in needs)
            raise GatewayError(
                Code.INSUFFICIENT_SCOPE,
                f"This API key has the scope {', '.join(caller.scopes)}; this needs {wanted}. Make another one with "
                f"`exo keys add NAME --scope {wanted.partition(' ')[0]}`.",
            )
        _scope_of(connection)[_CALLER] = caller

    return admit


def identify(ring: KeyRing, text: str, *, required: bool) -> Caller:
    """Give the caller behind the text of a key; raises 401.

    Clients that insist on a key send a placeholder; where none is required, only what claims to be one
    of ours is held to it.
    """
    if text.startswith(PREFIX) or (text and required):
        known = ring.find(text)
        if known is None:
            raise _unauthorized(
                "This API key is not admitted here; it may have been revoked. `exo keys list` on the node shows those "
                "that are, `exo keys add NAME` makes one."
            )
        return Caller(key=known.id, scopes=known.scopes)
    if required:
        raise _unauthorized(
            f"An API key is required. {_HOW} `exo keys add NAME` on a machine of this cluster makes one."
        )
    return Caller()


def caller_of(connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
    """Give whom the guard has admitted."""
    return _scope_of(connection)[_CALLER]


def read_key(headers: Mapping[str, str]) -> str:
    """Read a key as OpenAI's or as Anthropic's clients send it; empty when there is none."""
    kind, _, text = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and text.strip():
        return text.strip()
    return headers.get("x-api-key", "").strip()


def is_local(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether somebody on this machine asks for himself, not a proxy for somebody else."""
    client = connection.client
    if client is None or any(name in connection.headers for name in _BY_PROXY):
        return False
    try:
        address = ipaddress.ip_address(client.host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def _scope_of(connection: ASGIConnection[Any, Any, Any, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", connection.scope)


def _unauthorized(message: str) -> GatewayError:
    return GatewayError(Code.UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})
