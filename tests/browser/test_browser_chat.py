"""A person chats: answers grow, are text and nothing else, can be stopped, and failures show where they happened."""

import re
from typing import Any

from playwright.sync_api import expect

from support.browser import Opener, ask
from support.node import NodeProcess, wait_for

GROWTH = """
() => {
  const seen = (window.seenLengths = []);
  new MutationObserver(() => {
    const answer = document.querySelector("[data-testid=answer]");
    const length = answer?.textContent.length ?? 0;
    if (length && length !== seen.at(-1)) seen.push(length);
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}
"""


def test_an_answer_streams_into_the_page(open_page: Opener) -> None:
    page = open_page()
    page.evaluate(GROWTH)
    exchange = ask(page, "[[say:hello dashboard]]")
    expect(exchange.get_by_test_id("answer")).to_have_text("hello dashboard")
    expect(exchange).to_contain_text(re.compile(r"first token after [\d.]+ m?s"))
    expect(exchange).to_contain_text(re.compile(r"[\d.]+ tokens/s"))
    lengths: list[int] = page.evaluate("window.seenLengths")
    assert len(lengths) > 2, lengths
    assert lengths == sorted(lengths)


def test_the_next_question_knows_the_conversation(open_page: Opener) -> None:
    page = open_page()
    bodies: list[Any] = []
    page.on("request", lambda sent: bodies.append(sent.post_data_json) if "chat" in sent.url else None)
    expect(ask(page, "[[say:one]]").get_by_test_id("answer")).to_have_text("one")
    expect(ask(page, "[[say:two]]").get_by_test_id("answer")).to_have_text("two")
    assert [message["content"] for message in bodies[1]["messages"]] == ["[[say:one]]", "one", "[[say:two]]"]


def test_reasoning_stands_apart_from_the_answer(open_page: Opener) -> None:
    page = open_page()
    exchange = ask(page, "[[think:because of the test]][[say:forty-two]]")
    expect(exchange.get_by_test_id("answer")).to_have_text("forty-two")
    reasoning = exchange.get_by_text("because of the test", exact=True)
    expect(reasoning).to_be_hidden()
    exchange.get_by_text("Reasoning", exact=True).click()
    expect(reasoning).to_be_visible()


def test_markup_in_an_answer_stays_text(open_page: Opener) -> None:
    page = open_page()
    markup = "<img src=x onerror=document.title='taken'><b>bold</b>"
    exchange = ask(page, f"[[say:{markup}]]")
    expect(exchange.get_by_test_id("answer")).to_have_text(markup)
    assert page.locator("article img, article b").count() == 0
    assert page.title() == "exo"


def test_stop_ends_the_answer_here_and_the_request_there(open_page: Opener, node: NodeProcess) -> None:
    page = open_page()
    exchange = ask(page, f"[[say:{'word ' * 400}]]")
    expect(exchange.get_by_test_id("answer")).to_contain_text("word word")
    page.get_by_role("button", name="Stop answer").click()
    expect(exchange).to_contain_text("stopped by you")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    wait_for(lambda: node.state()["tasks"] == {}, seconds=10, what="cancelled request", node=node)


def test_a_refusal_shows_where_the_answer_would_be(open_page: Opener) -> None:
    page = open_page(refusals=1)
    exchange = ask(page, "too long " * 2000)
    expect(exchange.get_by_role("alert")).to_contain_text("context_length_exceeded")
    expect(exchange.get_by_role("button", name="Ask again")).to_be_enabled()
    expect(ask(page, "[[say:still here]]").get_by_test_id("answer")).to_have_text("still here")


def test_an_answer_that_breaks_off_keeps_its_beginning_and_says_why(open_page: Opener, faulty_node: Any) -> None:
    with faulty_node("tokens_per_second=30,crash_after_tokens=5") as node:
        node.place()
        page = open_page(url=node.url)
        exchange = ask(page, "[[say:a sentence that will never be finished]]")
        expect(exchange.get_by_role("alert")).to_contain_text("runner_failed")
        expect(exchange.get_by_test_id("answer")).to_contain_text("a sen")
        page.context.close()
