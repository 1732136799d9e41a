"""Conversations through templates of different abilities."""

import pytest

from exo.runners.text.template import ChatTemplate, Rendered, TemplateRefused, compile_template
from exo.streams.ids import ModelId
from exo.streams.requests import GenerationRequest, Message, Role, TextPart, Tool, ToolCall, ToolChoice

MESSAGES = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
ANYWHERE = MESSAGES + "{% if add_generation_prompt %}[assistant]{% endif %}"
FIRST = "{% if messages[0].role == 'system' %}<{{ messages[0].content }}>{% endif %}" + ANYWHERE.replace(
    "{% for m in messages %}", "{% for m in messages if m.role != 'system' %}"
)
NOWHERE = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}" + ANYWHERE.replace(
    "{% for m in messages %}",
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system here') }}{% endif %}",
)
TOOLS = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for m in messages %}[{{ m.role }}]{{ m.content }}"
    "{% for call in m.tool_calls or [] %}({% for key, value in call.function.arguments.items() %}"
    "{{ key }}={{ value }}{% endfor %}){% endfor %}"
    "{{ m.reasoning_content or '' }}{% endfor %}{% if enable_thinking %}<think>{% endif %}"
)


def turn(role: Role, text: str) -> Message:
    return Message(role=role, content=(TextPart(text),))


def render(source: str, *messages: Message, **more: object) -> str:
    request = GenerationRequest(model=ModelId("m"), messages=messages, **more)  # pyright: ignore[reportArgumentType]
    rendered = ChatTemplate(compile_template(source)).render(request)
    assert not rendered.special
    return rendered.text


TALK = (turn("system", "S"), turn("user", "A"), turn("assistant", "B"), turn("system", "T"), turn("user", "C"))


@pytest.mark.parametrize(
    ("source", "ability", "text"),
    [
        (ANYWHERE, "anywhere", "[system]S[user]A[assistant]B[system]T[user]C[assistant]"),
        (FIRST, "first", "<S\n\nT>[user]A[assistant]B[user]C[assistant]"),
        (NOWHERE, "nowhere", "[user]S\n\nT\n\nA[assistant]B[user]C[assistant]"),
    ],
)
def test_system_messages_go_where_the_template_takes_them(source: str, ability: str, text: str) -> None:
    assert ChatTemplate(compile_template(source)).system == ability
    assert render(source, *TALK) == text
    assert render(source, turn("user", "A")) == "[user]A[assistant]"


def test_without_a_user_the_instructions_speak_for_themselves() -> None:
    assert render(NOWHERE, turn("system", "S")) == "[user]S[assistant]"


def test_an_answer_can_be_continued() -> None:
    talk = (turn("user", "A"), turn("assistant", "Once upon"))
    assert render(ANYWHERE, *talk, continue_final_message=True) == "[user]A[assistant]Once upon"


def test_tools_are_told_as_the_choice_says() -> None:
    tools = (Tool(name="look", description="d", parameters={"type": "object"}), Tool(name="jump"))
    asked = turn("user", "A")
    assert '"name": "look"' in render(TOOLS, asked, tools=tools)
    assert "look" not in render(TOOLS, asked, tools=tools, tool_choice=ToolChoice(mode="none"))
    named = render(TOOLS, asked, tools=tools, tool_choice=ToolChoice(mode="named", name="jump"))
    assert "jump" in named
    assert "look" not in named
    with pytest.raises(TemplateRefused, match="no place for tools"):
        render(ANYWHERE, asked, tools=tools)
    assert render(ANYWHERE, asked, tools=tools, tool_choice=ToolChoice(mode="none")) == "[user]A[assistant]"


def test_calls_and_thinking_of_earlier_answers_are_handed_over() -> None:
    call = ToolCall(id="1", name="look", arguments='{"where": "up"}')
    answer = Message(role="assistant", tool_calls=(call,), reasoning="hm")
    assert render(TOOLS, turn("user", "A"), answer) == "[user]A[assistant](where=up)hm"
    assert render(TOOLS, turn("user", "A"), thinking=True) == "[user]A<think>"


def test_a_template_that_refuses_gives_its_reason() -> None:
    with pytest.raises(TemplateRefused, match="no such thing"):
        render("{% if messages | length > 1 %}{{ raise_exception('no such thing') }}{% endif %}x", *TALK)


def test_arguments_reach_the_template_but_not_the_machinery() -> None:
    asked = turn("user", "A")
    assert render(ANYWHERE + "{{ mood }}", asked, template_arguments={"mood": "!"}) == "[user]A[assistant]!"
    for name in ("chat_template", "messages", "tokenize"):
        with pytest.raises(TemplateRefused, match=name):
            render(ANYWHERE, asked, template_arguments={name: "x"})


def test_a_plain_prompt_needs_no_template() -> None:
    bare = ChatTemplate(None)
    assert bare.render(GenerationRequest(model=ModelId("m"), prompt="x")) == Rendered("x", special=True)
    with pytest.raises(TemplateRefused, match="no chat template"):
        bare.render(GenerationRequest(model=ModelId("m"), messages=TALK))
