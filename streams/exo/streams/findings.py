"""What is wrong with a machine, in words and with a stable code: shown, never acted on.

`exo doctor`, the dashboard and `GET /state/topology` show them; `docs/hardware.md` lists the codes.
"""

import msgspec


class NodeFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that somebody should know; `remedy` is what to do about it."""

    code: str
    message: str
    remedy: str = ""
