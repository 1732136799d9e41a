"""The one canonical request that every dialect becomes and every engine understands."""

from typing import Any, Literal

import msgspec

from exo.streams.ids import ModelId, TaskId

Role = Literal["system", "user", "assistant", "tool"]
Dialect = Literal["openai_chat", "openai_completions", "openai_responses", "anthropic", "ollama"]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """A piece of text in a message."""

    text: str


Part = TextPart


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call that an assistant made; `arguments` is JSON text."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One turn of the conversation."""

    role: Role
    content: tuple[Part, ...] = ()
    reasoning: str = ""
    name: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""

    def text(self) -> str:
        """Join the text parts, as templates without parts want it."""
        return "\n".join(part.text for part in self.content)


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function the model may call; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}
    strict: bool = False


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether tools may, must or must not be called; `name` goes with `named`."""

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str = ""
    parallel: bool = True


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is drawn; None leaves it to the card, then to the engine."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] = {}
    seed: int | None = None


class GenerationRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to generate.

    Either `messages` or `prompt` (text that no template touches) is set. `max_tokens` None means
    up to the context length. `top_logprobs` is 0 to 20 and needs `logprobs`.
    """

    model: ModelId
    messages: tuple[Message, ...] = ()
    prompt: str | None = None
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    logprobs: bool = False
    top_logprobs: int = 0
    thinking: bool | None = None
    reasoning_effort: str | None = None
    template_arguments: dict[str, Any] = {}
    continue_final_message: bool = False
    """The last message is an assistant's and is to be continued, not answered."""


class ResumeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What any gateway needs to render a running answer again from its first chunk.

    `created` is Unix time in seconds; `options` belong to the dialect; `key` is the id of the API
    key that asked, empty without keys.
    """

    dialect: Dialect
    created: int
    stream: bool
    options: dict[str, Any] = {}
    key: str = ""


class StoredRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body on `exo.requests.<task>`.

    With `blob`, the name of an object in `layout.BLOBS`, this is only a reference: the object holds
    the whole record, `request` here no more than the model.
    """

    task: TaskId
    request: GenerationRequest
    resume: ResumeRecord
    blob: str = ""
