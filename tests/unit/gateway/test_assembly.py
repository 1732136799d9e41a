"""Chunks in any order and any number of times come out once and in order."""

from hypothesis import given
from hypothesis import strategies as st

from exo.gateway.assembly import Assembly
from exo.streams.chunks import Admitted, Chunk, Done, Failed, Text, Usage


def answer(attempt: int = 1, *, words: int = 5) -> list[Chunk]:
    texts = [Text(attempt, index, f"w{index}") for index in range(1, words + 1)]
    return [Admitted(attempt, 0, 3), *texts, Done(attempt, words + 1, "stop", Usage())]


def feed(assembly: Assembly, chunks: list[Chunk]) -> list[Chunk]:
    ready: list[Chunk] = []
    for chunk in chunks:
        assembly.add(chunk, ready)
    return ready


@given(st.permutations(answer()), st.lists(st.sampled_from(answer()), max_size=20))
def test_any_order_with_repeats_gives_the_answer(order: list[Chunk], repeats: list[Chunk]) -> None:
    assembly = Assembly()
    assert feed(assembly, [*repeats, *order, *repeats]) == answer()
    assert assembly.ended
    assert not assembly.has_gap


def test_a_gap_holds_back_what_follows() -> None:
    assembly = Assembly()
    chunks = answer()
    assert feed(assembly, [chunks[0], chunks[2]]) == [chunks[0]]
    assert assembly.has_gap
    assert feed(assembly, [chunks[1]]) == [chunks[1], chunks[2]]
    assert not assembly.has_gap


def test_a_newer_attempt_begins_anew_until_output_was_given() -> None:
    assembly = Assembly()
    first, second = answer(1), answer(2)
    assert feed(assembly, [first[0], second[0], first[1], second[1]]) == [first[0], second[0], second[1]]
    assert feed(assembly, [Text(3, 1, "late")]) == []


def test_an_older_attempt_is_never_taken() -> None:
    assembly = Assembly()
    feed(assembly, [answer(2)[0]])
    assert feed(assembly, answer(1)) == []


def test_there_is_exactly_one_end() -> None:
    assembly = Assembly()
    ready = feed(assembly, answer())
    assert not assembly.fail("internal", "late", ready)
    assert feed(assembly, [Text(1, 7, "after the end")]) == []

    broken = Assembly()
    ready = feed(broken, answer()[:3])
    assert broken.fail("internal", "lost", ready)
    assert ready[-1] == Failed(1, 3, "internal", "lost")
    assert feed(broken, answer()) == []
