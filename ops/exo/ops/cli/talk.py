"""`exo run` and `exo chat`: talk to a model from the terminal."""

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from exo.ops.cli.options import DataDir, Url, ask_node, find_url
from exo.ops.errors import CommandError, UsageError
from exo.ops.terminal import ProgressLine, paint, say, tell

if TYPE_CHECKING:
    from exo.ops.chat import Piece, Question
    from exo.ops.client import NodeClient

_HELP = "/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer."

Model = Annotated[str, typer.Argument(help="The model; `exo models list` shows all.", show_default=False)]
System = Annotated[str | None, typer.Option(help="What the model is told about its task.")]
MaxTokens = Annotated[int | None, typer.Option(min=1, help="Longest answer, in tokens.")]
Temperature = Annotated[float | None, typer.Option(min=0, help="0 always takes the likeliest token.")]


def run(
    model: Model,
    prompt: Annotated[str | None, typer.Argument(help="What to ask; what is piped in stands below it.")] = None,
    *,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Print one answer as it is made. Starts the model if it does not run yet; Ctrl-C cancels."""
    from exo.ops.chat import Message, Question

    asked = _join(prompt, None if sys.stdin.isatty() else _read_piped())
    messages = [*([Message("system", system)] if system else []), Message("user", asked)]
    question = Question(model=model, messages=messages, max_tokens=max_tokens, temperature=temperature)
    ask_node(url, data_dir, lambda client: _answer(client, question))


def chat(
    model: Model,
    *,
    system: System = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    url: Url = None,
    data_dir: DataDir = None,
) -> None:
    """Hold a conversation with a model. Ctrl-C stops an answer, Ctrl-D ends it all."""
    from exo.ops.chat import Message, Question

    found = find_url(url, data_dir)
    start = [Message("system", system)] if system else []
    messages = list(start)
    if sys.stdin.isatty():
        tell(_HELP)
    while (line := _read_line()) is not None:
        if line == "/exit":
            return
        if line == "/clear":
            messages = list(start)
            continue
        if not line:
            continue
        messages.append(Message("user", line))
        question = Question(model=model, messages=messages, max_tokens=max_tokens, temperature=temperature)
        said = _take_turn(found, question)
        # A question without an answer would make the next one follow another question.
        messages = [*messages, Message("assistant", said)] if said else messages[:-1]


def _take_turn(url: str, question: "Question") -> str:
    """Answer one turn; an error or Ctrl-C ends the answer, not the conversation. A script ends at an error."""
    said: list[str] = []
    try:
        ask_node(url, None, lambda client: _answer(client, question, said=said))
    except KeyboardInterrupt:
        tell("\n[stopped]")
    except CommandError as error:
        if not sys.stdin.isatty():
            raise
        tell(f"error: {error}")
    return "".join(said)


def _read_line() -> str | None:
    if not sys.stdin.isatty():
        return next((line.strip() for line in sys.stdin), None)
    # Editing and history of what was typed come with this import alone.
    import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]

    try:
        return input(">>> ").strip()
    except EOFError:
        say()
        return None
    except KeyboardInterrupt:
        say()
        return ""


def _read_piped() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as error:
        raise UsageError("what was piped in is not UTF-8 text") from error


def _join(prompt: str | None, piped: str | None) -> str:
    parts = [part.strip() for part in (prompt, piped) if part and part.strip()]
    if not parts:
        raise UsageError(
            "nothing to ask", remedy='give a prompt, `exo run MODEL "..."`, pipe one in, or use `exo chat MODEL`'
        )
    return "\n\n".join(parts)


async def _answer(client: "NodeClient", question: "Question", *, said: list[str] | None = None) -> None:
    """Print an answer; a model that is known but not running is started first."""
    try:
        await _print_answer(client, question, said)
    except CommandError as error:
        if error.code not in {"model_not_running", "model_loading", "model_files_missing"}:
            raise
        from exo.ops.placing import ensure_ready

        with ProgressLine() as line:
            await ensure_ready(client, question.model, show=line.show)
        await _print_answer(client, question, said)


async def _print_answer(client: "NodeClient", question: "Question", said: list[str] | None) -> None:
    from exo.ops.chat import stream_answer

    printer = _Printer()
    try:
        async with aclosing(stream_answer(client, question)) as pieces:
            async for piece in pieces:
                printer.show(piece)
                if said is not None and piece.kind == "text":
                    said.append(piece.text)
    finally:
        printer.end()


class _Printer:
    """Writes the answer to stdout; thinking is dim on a terminal and left out of a pipe."""

    def __init__(self) -> None:
        self._last = ""
        self._kind = "text"

    def show(self, piece: "Piece") -> None:
        thinking = piece.kind == "reasoning"
        if thinking and not sys.stdout.isatty():
            return
        if self._kind == "reasoning" and not thinking:
            sys.stdout.write("\n\n")
        self._kind = piece.kind
        sys.stdout.write(paint(piece.text, "dim" if thinking else ""))
        sys.stdout.flush()
        self._last = piece.text[-1]

    def end(self) -> None:
        if self._last and self._last != "\n":
            say()
