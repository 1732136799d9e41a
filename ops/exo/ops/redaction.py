"""The one place that keeps users' text and secrets out of the logs.

A structlog processor: values under these keys are replaced before any renderer sees them, however
deep they lie. Nothing in exo logs them on purpose; this holds when somebody does by accident.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, cast

_TEXT = frozenset({
    "arguments", "body", "content", "input", "messages", "output", "payload", "prompt", "reasoning", "text",
})  # fmt: skip
_SECRETS = ("api_key", "apikey", "authorization", "cookie", "password", "secret", "token")
_COUNTS = ("tokens", "token_count", "_per_second")
"""Words that hold `token` without being a secret."""

HIDDEN = "[redacted]"


def redact_event(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace what must not be logged; the event's own name is a literal of the source and stays."""
    return {key: value if key == "event" else redact_value(key, value) for key, value in event.items()}


def redact_value(key: str, value: Any) -> Any:
    """Give the value as a log may show it."""
    if is_private(key) and value not in (None, "", 0):
        return HIDDEN
    if isinstance(value, Mapping):
        entries = cast("Mapping[Any, Any]", value)
        return {name: redact_value(str(name), entry) for name, entry in entries.items()}
    if isinstance(value, list | tuple):
        return [redact_value("", entry) for entry in cast("list[Any]", value)]
    return value


def is_private(key: str) -> bool:
    """Whether a key names text of a user or a secret."""
    name = key.lower().replace("-", "_")
    if name in _TEXT:
        return True
    return any(word in name for word in _SECRETS) and not any(word in name for word in _COUNTS)
