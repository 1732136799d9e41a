"""Reads JSON bodies into structs, with refusals that name the field at fault."""

import re
from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from exo.gateway.errors import GatewayError
from exo.streams.codes import Code

T = TypeVar("T")

_AT: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"missing required field `(?P<name>[^`]+)`")


@cache
def _decoder_of(kind: type[T]) -> "msgspec.json.Decoder[T]":
    return msgspec.json.Decoder(kind)


def decode_body(kind: type[T], body: bytes) -> T:
    """Decode a JSON body; `invalid_request` with `param` on malformed JSON, wrong types and missing fields."""
    try:
        return _decoder_of(kind).decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise _explain(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise GatewayError(Code.INVALID_REQUEST, f"The body is not valid JSON: {error}") from error


def convert_body(kind: type[T], value: Any) -> T:
    """Convert what was decoded already; errors as in `decode_body`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _explain(error) from error


def _explain(error: msgspec.ValidationError) -> GatewayError:
    match = _AT.match(str(error))
    what, path = (match["what"], match["path"] or "") if match else (str(error), "")
    missing = _MISSING.search(what)
    if missing:
        path = f"{path}.{missing['name']}"
    return GatewayError(
        Code.INVALID_REQUEST, what + (f" (in {path.lstrip('.')})" if path else ""), param=path.lstrip(".") or None
    )


def invalid(message: str, param: str | None = None) -> GatewayError:
    """Give a refusal of one field."""
    return GatewayError(Code.INVALID_REQUEST, message, param=param)
