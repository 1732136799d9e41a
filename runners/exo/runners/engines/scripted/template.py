"""The chat template of the scripted engine: ChatML with thinking and JSON tool calls, through Jinja."""

from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from exo.runners.engines.scripted.directives import Directive, continues_answer
from exo.runners.text.parse.calls import describe_tool
from exo.streams.requests import GenerationRequest, Message

TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools, one JSON object per line. Call one with <tool_call>{"name": ..., "arguments": {...}}</tool_call>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning %}<think>
{{ message.reasoning }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": {{ call.name | tojson }}, "arguments": {{ call.arguments }}}
</tool_call>
{%- endfor %}
{%- if not loop.last or not continues %}<|im_end|>
{% endif %}{% endfor %}
{%- if not continues %}<|im_start|>assistant
{% endif %}"""

_environment = ImmutableSandboxedEnvironment(keep_trailing_newline=True)
_template = _environment.from_string(TEMPLATE)


def render_prompt(request: GenerationRequest) -> str:
    """Give the text that the model would read."""
    if request.prompt is not None:
        return request.prompt
    return _template.render(
        messages=[_describe(message) for message in request.messages],
        tools=[describe_tool(tool) for tool in request.tools] if request.tool_choice.mode != "none" else [],
        continues=continues_answer(request),
    )


def _describe(message: Message) -> dict[str, Any]:
    return {
        "role": message.role,
        "content": message.text(),
        "reasoning": message.reasoning,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls],
    }


def spell_answer(directives: list[Directive]) -> str:
    """Give the text that a model would write to say, think and call this."""
    text = ""
    for directive in directives:
        match directive.kind:
            case "say":
                text += directive.text
            case "think":
                text += f"<think>\n{directive.text}\n</think>\n\n"
            case "tool":
                lead = "\n" if text and not text.endswith("</think>\n\n") else ""
                body = f'{{"name": "{directive.name}", "arguments": {directive.text}}}'
                text += f"{lead}<tool_call>\n{body}\n</tool_call>"
    return text
