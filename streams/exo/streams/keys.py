"""API keys as State keeps them: who they belong to and what they allow, never the key itself."""

from typing import Final, Literal, get_args

import msgspec

from exo.streams.ids import KeyId

Scope = Literal["infer", "read", "admin"]
"""`infer` asks models, `read` looks at the cluster, `admin` changes it; `admin` includes the others."""


SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
LONGEST_NAME: Final = 64


def find_name_fault(name: str) -> str:
    """Say what is wrong with the name of a key, empty for nothing: it is printed in lists and logs."""
    if not name.strip():
        return "is empty"
    if len(name) > LONGEST_NAME:
        return f"has {len(name)} characters, and {LONGEST_NAME} are allowed"
    return "" if name.isprintable() else "holds characters that cannot be printed"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was given out. `created_at` is Unix time in ms."""

    id: KeyId
    name: str
    scopes: tuple[Scope, ...]
    sha256: str
    """Of the key as its owner sends it, in hex: the key holds 256 random bits, so nothing can be guessed from it."""
    created_at: int = 0

    def allows(self, scope: Scope) -> bool:
        """Whether the key may do what needs `scope`."""
        return scope in self.scopes or "admin" in self.scopes
