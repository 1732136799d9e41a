"""Puts what a person typed into the path of a request: checked and quoted, so that it cannot be another path."""

from typing import Final
from urllib.parse import quote

from exo.ops.errors import UsageError

_DOTS: Final = frozenset({"", ".", ".."})


def fill_path(template: str, value: str, *, what: str) -> str:
    """Fill the one `{}` of a path with a `what`; refuses what names nothing."""
    if not value.strip() or value in _DOTS or not value.isprintable():
        raise UsageError(f"{value!r} is not the {what}")
    return template.format(quote(value, safe=""))


def fill_model_path(template: str, model: str) -> str:
    """Fill the one `{}` of a path with a model's id or alias, whose parts stand between slashes."""
    if not model.isprintable() or any(part.strip() in _DOTS for part in model.split("/")):
        raise UsageError(f"{model!r} is not the id of a model", remedy="`exo models list` shows all")
    return template.format(quote(model, safe="/"))
