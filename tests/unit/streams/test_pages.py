"""The bounded map: newest entries survive, copies share what did not change."""

from exo.streams.pages import PAGE, Pages


def test_the_newest_entries_survive() -> None:
    pages: Pages[str, int] = Pages(limit=2 * PAGE)
    for number in range(5 * PAGE):
        pages = pages.add(str(number), number)
    assert PAGE < len(pages) <= 2 * PAGE
    assert pages.get(str(5 * PAGE - 1)) == 5 * PAGE - 1
    assert pages.get("0") is None


def test_adding_leaves_the_original_as_it_was() -> None:
    before: Pages[str, int] = Pages(limit=PAGE)
    after = before.add("a", 1)
    assert len(before) == 0
    assert dict(after.items()) == {"a": 1}


def test_full_pages_are_shared_between_copies() -> None:
    pages: Pages[str, int] = Pages(limit=4 * PAGE)
    for number in range(PAGE + 1):
        pages = pages.add(str(number), number)
    assert pages.add("next", 1).pages[0] is pages.pages[0]
