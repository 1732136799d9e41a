"""The chat template of the scripted engine: ChatML with thinking and JSON tool calls.

The template goes through the same `ChatTemplate` as those of real models, rendered by Jinja alone.
"""

from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment

from exo.runners.engines.scripted.directives import Directive
from exo.runners.text.template import ChatTemplate

TEMPLATE = """\
{%- if tools %}<|im_start|>system
Tools, one JSON object per line. Call one with <tool_call>{"name": ..., "arguments": {...}}</tool_call>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.reasoning_content %}<think>
{{ message.reasoning_content }}
</think>

{% endif %}{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}
{%- if not (loop.last and continue_final_message) %}<|im_end|>
{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def load_template() -> ChatTemplate:
    """Compile the template; takes a few milliseconds."""
    environment = ImmutableSandboxedEnvironment(keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE)

    def render(messages: list[dict[str, Any]], **keywords: Any) -> str:
        return template.render(messages=messages, **keywords)

    return ChatTemplate(render)


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
