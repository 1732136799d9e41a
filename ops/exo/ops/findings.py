"""One conclusion of `exo doctor`."""

from typing import Literal

import msgspec

Severity = Literal["ok", "warning", "error"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at. An `error` keeps exo or a model from running, a `warning` makes it fragile."""

    subject: str
    severity: Severity
    message: str
    remedy: str = ""
