"""A bounded map in order of insertion that is cheap to copy: the newest N entries survive.

State is frozen, so every change copies what it changes. A plain dict of 4,096 entries would cost
30 us a change; here only the newest page of 64 is copied.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")

PAGE = 64


class Pages(msgspec.Struct, Generic[K, V], frozen=True, kw_only=True):
    """At most `limit` entries (a multiple of 64), oldest pages dropped first."""

    limit: int
    pages: tuple[dict[K, V], ...] = ()

    def get(self, key: K) -> V | None:
        """Look a key up, newest page first."""
        for page in reversed(self.pages):
            value = page.get(key)
            if value is not None:
                return value
        return None

    def add(self, key: K, value: V) -> "Pages[K, V]":
        """Give a copy with one more entry. The caller knows that the key is new: no look-up is made."""
        if self.pages and len(self.pages[-1]) < PAGE:
            pages = (*self.pages[:-1], {**self.pages[-1], key: value})
        else:
            pages = (*self.pages, {key: value})
        return Pages(limit=self.limit, pages=pages[-(self.limit // PAGE) :])

    def items(self) -> Iterator[tuple[K, V]]:
        """Walk all entries, oldest first."""
        for page in self.pages:
            yield from page.items()

    def __len__(self) -> int:
        """Count the entries."""
        return sum(len(page) for page in self.pages)
