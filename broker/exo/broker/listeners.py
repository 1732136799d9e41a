"""Who is called when something changes. Held by whatever changes: the connection, the table of peers, the cluster."""

from collections.abc import Callable
from typing import Generic, TypeVarTuple, Unpack

import structlog

log = structlog.get_logger(__name__)

Told = TypeVarTuple("Told")


class Listeners(Generic[*Told]):
    """Called in the order in which they were added; one that fails is logged and keeps nobody from the news."""

    def __init__(self, what: str) -> None:
        """`what` they listen to, for the log."""
        self._what = what
        self._listeners: list[Callable[[Unpack[Told]], None]] = []

    def add(self, listener: Callable[[Unpack[Told]], None]) -> Callable[[], None]:
        """Give a function that ends it; safe to call twice."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def tell(self, *told: *Told) -> None:
        """Call all that listen now."""
        for listener in tuple(self._listeners):
            try:
                listener(*told)
            except Exception:
                log.exception("a listener failed", what=self._what)
