"""Chat Completions."""

from typing import Any

from litestar import Request, post
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp

from exo.gateway.answers import AnswerResponse
from exo.gateway.api_keys import caller_of
from exo.gateway.bodies import invalid
from exo.gateway.dialects.openai_chat.to_request import to_request
from exo.gateway.dialects.registry import DIALECTS
from exo.gateway.gateway import Here
from exo.streams.tasks import OnDisconnect

ON_DISCONNECT = "X-Exo-On-Disconnect"


@post("/v1/chat/completions", status_code=200, summary="Answer a conversation")
async def complete_chat(request: Request[Any, Any, Any], gateway: Here) -> ASGIApp:
    """OpenAI's Chat Completions, streamed or whole."""
    parsed = to_request(await request.body())
    dialect = DIALECTS["openai_chat"]
    relay, stored = await gateway.submitter.submit(
        parsed.request,
        dialect="openai_chat",
        stream=parsed.stream,
        options=parsed.options,
        on_disconnect=read_on_disconnect(request),
        key=caller_of(request).key,
    )
    if parsed.stream:
        first = await gateway.courier.await_first(relay, request.receive)
        return AnswerResponse(relay, stored, dialect=dialect, first=first, courier=gateway.courier)
    chunks = await gateway.courier.collect(relay, request.receive)
    body = dialect.render_whole(stored.task, stored.request.model, stored.resume, chunks)
    return ASGIResponse(body=body, media_type="application/json")


def read_on_disconnect(request: Request[Any, Any, Any]) -> OnDisconnect:
    """Read what becomes of the request when its client hangs up."""
    match request.headers.get(ON_DISCONNECT, "cancel").strip().lower():
        case "cancel":
            return "cancel"
        case "continue":
            return "continue"
        case other:
            raise invalid(f"{ON_DISCONNECT} must be cancel or continue, not {other!r}.", ON_DISCONNECT)
