"""camelCase <-> snake_case of JSON keys. Pure.

Upstream writes cluster types in camelCase, but in snake_case inside events, and reads both.
"""

import re
from collections.abc import Callable
from typing import Any, cast

_HUMP = re.compile(r"(?<=[a-z0-9])([A-Z])")
_UNDERSCORE = re.compile(r"_([a-z0-9])")
_CLASS_NAME = re.compile(r"^[A-Z]")


def to_snake(value: Any) -> Any:
    """Give a copy with all keys in snake_case; class names used as tags stay as they are."""
    return _rename(value, lambda key: key if _CLASS_NAME.match(key) else _HUMP.sub(r"_\1", key).lower())


def to_camel(value: Any) -> Any:
    """Give a copy with all keys in camelCase."""
    return _rename(value, lambda key: _UNDERSCORE.sub(lambda match: match[1].upper(), key))


def _rename(value: Any, rename: Callable[[str], str]) -> Any:
    match value:
        case dict():
            mapping = cast("dict[str, Any]", value)
            return {rename(key): _rename(entry, rename) for key, entry in mapping.items()}
        case list() | tuple():
            return [_rename(entry, rename) for entry in cast("list[Any]", value)]
        case _:
            return value
