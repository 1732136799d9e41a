"""Tools and the choice among them. Pure."""

from typing import Any

from exo.gateway.bodies import invalid
from exo.gateway.dialects.openai_chat.types import ChatRequest, ToolIn
from exo.streams.requests import Tool, ToolChoice


def to_tools(chat: ChatRequest) -> tuple[Tool, ...]:
    """Take the functions over; with tool_choice `none` the model does not even see them."""
    tools = tuple(_to_tool(tool, f"tools[{number}]") for number, tool in enumerate(chat.tools or []))
    return () if chat.tool_choice == "none" else tools


def _to_tool(tool: ToolIn, where: str) -> Tool:
    if tool.type not in {None, "function"}:
        raise invalid(f"Tools of type {tool.type!r} are not supported; only functions are.", f"{where}.type")
    if tool.function is None:
        raise invalid("A tool needs a `function`.", f"{where}.function")
    if not tool.function.name:
        raise invalid("A function needs a name.", f"{where}.function.name")
    return Tool(
        name=tool.function.name,
        description=tool.function.description or "",
        parameters=tool.function.parameters or {},
        strict=bool(tool.function.strict),
    )


def to_tool_choice(chat: ChatRequest) -> ToolChoice:
    """Read the choice. `required` and a named function cannot be enforced yet, so they are refused."""
    parallel = chat.parallel_tool_calls is not False
    match chat.tool_choice:
        case None | "auto":
            return ToolChoice(parallel=parallel)
        case "none":
            return ToolChoice(mode="none", parallel=parallel)
        case "required":
            raise _unenforceable("'required'")
        case str(other):
            raise invalid(f"tool_choice must be none, auto, required or a function, not {other!r}.", "tool_choice")
        case dict(choice):
            _check_named(choice, chat)
            raise _unenforceable("a named function")


def _check_named(choice: dict[str, Any], chat: ChatRequest) -> None:
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            pass
        case _:
            raise invalid("tool_choice as an object must be {type: function, function: {name}}.", "tool_choice")
    offered = [tool.function.name for tool in chat.tools or [] if tool.function is not None]
    if name not in offered:
        raise invalid(f"tool_choice names {name!r}, which is not among the tools.", "tool_choice.function.name")


def _unenforceable(what: str) -> Exception:
    return invalid(
        f"tool_choice {what} is not supported by this version: it cannot force a call yet. "
        "Use 'auto' and say in the prompt which function to call.",
        "tool_choice",
    )
