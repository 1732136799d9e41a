"""API keys: given out, listed, revoked. The text of a key is in the one answer that gives it out."""

from typing import Annotated, Any

import msgspec
from litestar import Request, delete, get, post
from litestar.params import FromPath

from exo.gateway.api_keys import draw_key
from exo.gateway.bodies import decode_body, invalid
from exo.gateway.commands import now_ms
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Here
from exo.streams.commands import AddApiKey, RevokeApiKey
from exo.streams.ids import KeyId, new_command_id
from exo.streams.keys import LONGEST_NAME, SCOPES, ApiKey, Scope, find_name_fault


class NewKeyBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /v1/keys`."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
    scopes: Annotated[tuple[Scope, ...], msgspec.Meta(min_length=1)] = ("infer",)


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is admitted. `created` is Unix time in seconds."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    created: int


class NewKey(KeyEntry, frozen=True, kw_only=True):
    """A key that was just made. `key` is shown here and never again."""

    key: str


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """All keys, oldest first."""

    object: str = "list"
    data: tuple[KeyEntry, ...]


class Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """The key is refused from now on, on every node."""

    id: str
    deleted: bool = True


@post("/v1/keys", status_code=201, summary="Make an API key")
async def add_key(request: Request[Any, Any, Any], gateway: Here) -> NewKey:
    """Answers with the key itself, once: the cluster keeps only its hash."""
    body = _decode(await request.body())
    key, text = draw_key(body.name, tuple(dict.fromkeys(body.scopes)))
    issued = now_ms()
    await gateway.commander.execute(AddApiKey(command_id=new_command_id(), issued_at=issued, key=key))
    return NewKey(id=key.id, name=key.name, scopes=key.scopes, created=issued // 1000, key=text)


@get("/v1/keys", summary="All API keys")
async def list_keys(gateway: Here) -> KeyList:
    """Names, ids and scopes; nobody can be told a key's text again."""
    return KeyList(data=tuple(_describe(key) for key in gateway.state.api_keys.values()))


@delete("/v1/keys/{key_id:str}", status_code=200, summary="Revoke an API key")
async def revoke_key(gateway: Here, key_id: FromPath[str]) -> Revoked:
    """Requests that it has sent already are answered to their end."""
    command = RevokeApiKey(command_id=new_command_id(), issued_at=now_ms(), key=KeyId(key_id))
    await gateway.commander.execute(command)
    return Revoked(id=key_id)


def _decode(raw: bytes) -> NewKeyBody:
    try:
        body = decode_body(NewKeyBody, raw)
    except GatewayError as error:
        if (error.param or "").startswith("scopes["):
            raise invalid(f"{error.message}; a scope is one of {', '.join(SCOPES)}", error.param) from error
        raise
    if fault := find_name_fault(body.name):
        raise invalid(f"The name {fault}", "name")
    return body


def _describe(key: ApiKey) -> KeyEntry:
    return KeyEntry(id=key.id, name=key.name, scopes=key.scopes, created=key.created_at // 1000)
