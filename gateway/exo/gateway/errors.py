"""Every refusal of the gateway, and how each dialect spells it.

Handlers raise `GatewayError`; one handler of the app renders it, whatever it was raised by. Nothing
of a traceback ever reaches a client: an unforeseen error is `internal` and its traceback is logged.
"""

from typing import Final

import msgspec
import structlog

from exo.broker.errors import BrokerError, BusUnavailableError, PayloadTooLargeError, StreamFullError
from exo.streams.codes import Code

log = structlog.get_logger(__name__)

INVALID: Final = "invalid_request_error"
SERVER: Final = "server_error"

STATUS: Final[dict[Code, tuple[int, str]]] = {
    Code.INVALID_REQUEST: (400, INVALID),
    Code.CONTEXT_LENGTH_EXCEEDED: (400, INVALID),
    Code.PAYLOAD_TOO_LARGE: (413, INVALID),
    Code.NOT_FOUND: (404, INVALID),
    Code.UNAUTHORIZED: (401, "authentication_error"),
    Code.INSUFFICIENT_SCOPE: (403, "permission_error"),
    Code.FORBIDDEN: (403, INVALID),
    Code.METHOD_NOT_ALLOWED: (405, INVALID),
    Code.NOT_BUILT: (501, SERVER),
    Code.MODEL_NOT_FOUND: (404, INVALID),
    Code.MODEL_NOT_RUNNING: (404, INVALID),
    Code.MODEL_LOADING: (503, SERVER),
    Code.MODEL_FILES_MISSING: (404, INVALID),
    Code.INSUFFICIENT_MEMORY: (400, INVALID),
    Code.MEMORY_UNKNOWN: (503, SERVER),
    Code.UNPLACEABLE: (400, INVALID),
    Code.INSTANCE_NOT_FOUND: (404, INVALID),
    Code.INSTANCE_REMOVED: (503, SERVER),
    Code.NODE_NOT_FOUND: (404, INVALID),
    Code.KEY_NOT_FOUND: (404, INVALID),
    Code.TASK_NOT_FOUND: (404, INVALID),
    Code.TASK_EXISTS: (409, INVALID),
    Code.COMMAND_NOT_FOUND: (404, INVALID),
    Code.COMMAND_EXPIRED: (503, SERVER),
    Code.COMMAND_UNKNOWN: (501, SERVER),
    Code.OVERLOADED: (429, "rate_limit_exceeded"),
    Code.DEADLINE_EXCEEDED: (504, SERVER),
    Code.CANCELLED: (499, INVALID),
    Code.RUNNER_FAILED: (500, SERVER),
    Code.ENGINE_FAILED: (500, SERVER),
    Code.NODE_RESTARTED: (503, SERVER),
    Code.NODE_TIMED_OUT: (500, SERVER),
    Code.CLUSTER_MERGED: (503, SERVER),
    Code.RESUME_EXPIRED: (410, INVALID),
    Code.CLUSTER_MERGED: (503, SERVER),
    Code.BROKER_UNAVAILABLE: (503, SERVER),
    Code.MASTER_UNAVAILABLE: (503, SERVER),
    Code.INTERNAL: (500, SERVER),
}
"""Code -> HTTP status and OpenAI's error type."""

RETRY_AFTER: Final = {429: 1, 503: 2}
"""Seconds a client is asked to wait, by HTTP status."""


class GatewayError(Exception):
    """Raised for everything that a client is refused. `param` names the field at fault, when one is."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        status: int | None = None,
        retry_after: int | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        known_status, self.type = STATUS.get(_known(code), STATUS[Code.INTERNAL])
        self.status = status or known_status
        self.retry_after = retry_after if retry_after is not None else RETRY_AFTER.get(self.status)
        self.headers = headers or {}


class ClientGoneError(Exception):
    """Raised when the client hung up before its answer was ready: there is nobody left to answer."""


def _known(code: str) -> Code:
    try:
        return Code(code)
    except ValueError:
        # A newer node may send a code that this version does not know; the text still says what is wrong.
        return Code.INTERNAL


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """OpenAI's error object. All four keys are always present."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every error, on the management routes too."""

    error: ErrorDetail


def render_openai(error: GatewayError) -> bytes:
    """Encode an error as OpenAI's API does."""
    detail = ErrorDetail(message=error.message, type=error.type, param=error.param, code=error.code)
    return msgspec.json.encode(ErrorBody(error=detail))


def headers_of(error: GatewayError) -> dict[str, str]:
    """Headers that go with an error, `Retry-After` among them."""
    retry = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return {**error.headers, **retry}


def from_exception(error: BaseException) -> GatewayError:
    """Turn whatever a handler raised into a refusal; what nobody foresaw is logged here."""
    match error:
        case GatewayError():
            return error
        case PayloadTooLargeError():
            return GatewayError(Code.PAYLOAD_TOO_LARGE, str(error))
        case BusUnavailableError() | StreamFullError():
            log.warning("the broker refused a request", error=str(error))
            return GatewayError(Code.BROKER_UNAVAILABLE, f"The message broker cannot be used right now: {error}")
        case BrokerError():
            log.error("the broker failed", exc_info=error)
            return GatewayError(Code.INTERNAL, "The message broker reported an error; the node's log has the details.")
        case _:
            log.error("a request failed", exc_info=error)
            return GatewayError(Code.INTERNAL, "exo failed on this request; the node's log has the details.")
