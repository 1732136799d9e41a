"""Who may talk to this node over HTTP: checks of Host and Origin, pure functions.

They keep web pages that a user happens to visit from driving the cluster: a page elsewhere is told
apart by its Origin, a name that was re-bound to this machine by its Host. API keys come on top of
this with `--host`: `api_keys.py`.
"""

import ipaddress
from urllib.parse import urlsplit

import msgspec

from exo.gateway.errors import GatewayError
from exo.streams.codes import Code


class AccessPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Names this node answers to beside loopback and plain addresses, and foreign origins that may call it.

    `origins` holds whole origins such as `https://chat.example`; `*` admits every one.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    keys_required: bool = False
    """Whether whoever does not ask from this machine needs an API key."""


def check_access(policy: AccessPolicy, *, host: str, origin: str) -> None:
    """Refuse a request with 403 unless Host and Origin are admitted; an empty Origin is no browser's."""
    if host and not is_own_host(policy, host):
        raise GatewayError(
            Code.FORBIDDEN,
            f"This node does not answer to the name {host!r}. Use its address or localhost, or add the name to the "
            "setting `http_hosts`.",
            param="Host",
        )
    if origin and not is_admitted_origin(policy, host=host, origin=origin):
        raise GatewayError(
            Code.FORBIDDEN,
            f"Pages from {origin} may not call this node. Add the origin to the setting `http_origins` to allow it.",
            param="Origin",
        )


def is_own_host(policy: AccessPolicy, host: str) -> bool:
    """Whether a Host header names this machine: re-binding needs a name, so plain addresses are safe."""
    name = _name_of(host)
    return _is_loopback_name(name) or _is_address(name) or name in policy.hosts


def is_admitted_origin(policy: AccessPolicy, *, host: str, origin: str) -> bool:
    """Whether a page of this origin may call us: our own pages, pages served from this machine, admitted ones."""
    if "*" in policy.origins or origin in policy.origins:
        return True
    name = _name_of(origin.partition("://")[2])
    return bool(name) and (origin.endswith(f"://{host}") or _is_loopback_name(name) or _is_loopback_address(name))


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether an address or name to listen on is reached from this machine only."""
    return _is_loopback_name(host) or _is_loopback_address(host)


def _is_loopback_name(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback_address(name: str) -> bool:
    return _is_address(name) and ipaddress.ip_address(name).is_loopback
