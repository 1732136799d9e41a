"""Receipts of commands, and the command to cancel a request."""

from typing import Any

import msgspec
from litestar import Request, get, post
from litestar.params import FromPath

from exo.gateway.api_keys import caller_of
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Here
from exo.streams.codes import Code
from exo.streams.ids import CommandId, TaskId, task_of_public_id
from exo.streams.state import State


class CommandReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """How a command was decided. `subject_id` is the instance, task or model it was about."""

    command_id: str
    outcome: str
    sequence: int
    code: str
    reason: str
    subject_id: str


class Cancelled(msgspec.Struct, frozen=True, kw_only=True):
    """The id is the one that was given."""

    message: str = "Command cancelled."
    command_id: str


@get("/v1/commands/{command_id:str}", summary="How a command was decided")
async def get_command(gateway: Here, command_id: FromPath[str]) -> CommandReceipt:
    """404 while the master has not decided it, and after 4,096 newer ones."""
    receipt = gateway.state.receipts.get(CommandId(command_id))
    if receipt is None:
        raise GatewayError(Code.COMMAND_NOT_FOUND, f"No receipt of the command {command_id} is kept.")
    return CommandReceipt(
        command_id=command_id,
        outcome=receipt.outcome,
        sequence=receipt.sequence,
        code=receipt.code,
        reason=receipt.reason,
        subject_id=receipt.subject_id,
    )


@post("/v1/cancel/{request_id:str}", status_code=200, summary="Cancel a request")
async def cancel_request(request: Request[Any, Any, Any], gateway: Here, request_id: FromPath[str]) -> Cancelled:
    """Takes the id of a task, of its command, or of the answer that a client sees; with a key, only its own."""
    task = find_running(gateway.state, request_id)
    if task is None or not caller_of(request).owns(gateway.state.tasks[task].key):
        raise GatewayError(Code.TASK_NOT_FOUND, "Command not found or already completed")
    await gateway.canceller.ask(task, reason="the request was cancelled")
    return Cancelled(command_id=request_id)


def find_running(state: State, request_id: str) -> TaskId | None:
    """Give the running task behind any of its ids."""
    task = task_of_public_id(request_id)
    if task is not None and task in state.tasks:
        return task
    return next((record.id for record in state.tasks.values() if record.command == request_id), None)
