"""The names that upstream exo gives to flags and environment variables, and what becomes of each.

Every one is kept, translated, or refused in one line that names ours. `docs/upstream-flags.md`
lists the same tables, and a test compares them. Upstream's names that are ours too stand here as
`Kept`, so that the list is whole.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from exo.ops.errors import SettingsError, UsageError


class Kept(msgspec.Struct, frozen=True):
    """The same name, the same meaning."""


class Renamed(msgspec.Struct, frozen=True):
    """Accepted and read as ours. `value` replaces what was given; empty passes it on."""

    ours: str
    value: str = ""
    below_home: bool = False
    """A relative path is one below the user's home directory, not the current one."""


class Refused(msgspec.Struct, frozen=True):
    """Stops the start. `why` is the rest of the line behind the name."""

    why: str


class Ignored(msgspec.Struct, frozen=True):
    """Read by a library or by another tool, never by exo itself."""

    reader: str


Fate = Kept | Renamed | Refused | Ignored

_NO_ROLE = "every node may become master, the cluster decides; leave it out"
_NO_IMAGES = "this version has no image models; leave it out"

FLAGS: Mapping[str, Fate] = {
    "-q": Kept(),
    "--quiet": Kept(),
    "-v": Kept(),
    "--verbose": Kept(),
    "--no-api": Kept(),
    "--no-worker": Kept(),
    "--offline": Kept(),
    "--legacy-daemon": Kept(),
    "--namespace": Kept(),
    "--version": Kept(),
    "--api-port": Renamed("--port"),
    "--no-batch": Renamed("--max-concurrent-requests", "1"),
    "-m": Refused(_NO_ROLE),
    "--force-master": Refused(_NO_ROLE),
    "--no-downloads": Refused("nothing is fetched unless a model is added; use --offline to forbid that too"),
    "--libp2p-port": Renamed("--cluster-port"),
    "--bootstrap-peers": Renamed("--join"),
    "--zenoh-port": Refused("nodes meet on --cluster-port, and the message broker has EXO_NATS_PORT"),
    "--discovery-port": Refused("multicast DNS has one port, 5353; --join needs no multicast at all"),
    "--fast-synch": Refused("set MLX_METAL_FAST_SYNCH=1, which MLX reads itself"),
    "--no-fast-synch": Refused("leave it out: fast synchronisation is off unless MLX_METAL_FAST_SYNCH=1 is set"),
}

VARIABLES: Mapping[str, Fate] = {
    "EXO_OFFLINE": Kept(),
    "EXO_DEFAULT_MODELS_DIR": Kept(),
    "EXO_MODELS_DIRS": Kept(),
    "EXO_MODELS_READ_ONLY_DIRS": Kept(),
    "EXO_MAX_CONCURRENT_REQUESTS": Kept(),
    "EXO_MAX_INSTANCE_RETRIES": Kept(),
    "EXO_HOST": Kept(),
    "EXO_PORT": Kept(),
    "EXO_BOOTSTRAP_PEERS": Kept(),
    "EXO_MACMON_PATH": Kept(),
    "EXO_HOME": Renamed("EXO_DATA_DIR", below_home=True),
    "EXO_ZENOH_NAMESPACE": Renamed("EXO_NAMESPACE"),
    "EXO_NO_BATCH": Renamed("EXO_MAX_CONCURRENT_REQUESTS", "1"),
    "OVERRIDE_MEMORY_MB": Renamed("EXO_MEMORY_AVAILABLE_MB"),
    "EXO_LIBP2P_NAMESPACE": Refused("it is called EXO_NAMESPACE"),
    "EXO_FAST_SYNCH": Refused("set MLX_METAL_FAST_SYNCH=1 instead, which MLX reads itself"),
    "EXO_ENABLE_IMAGE_MODELS": Refused(_NO_IMAGES),
    "EXO_TRACING_ENABLED": Refused("this version records no traces; leave it out"),
    "EXO_MEMORY_THRESHOLD": Refused("this version keeps no prefix cache; EXO_MEMORY_AVAILABLE_MB limits memory"),
    "ENABLE_DISAGGREGATION": Refused("this version cannot split prefill from decode; leave it out"),
    "EXO_RESOURCES_DIR": Refused("the resources are part of the package; leave it out"),
    "EXO_DASHBOARD_DIR": Refused("the dashboard is part of the package; leave it out"),
    "EXO_RUNTIME_DIR": Refused("EXO_DATA_DIR is the one directory for everything"),
    "EXO_TESTS": Refused("nothing here behaves differently under tests; leave it out"),
    "EXO_REF": Ignored("upstream's tools"),
    "HF_TOKEN": Ignored("the hub's library"),
    "HF_ENDPOINT": Ignored("the hub's library"),
    "HF_HOME": Ignored("the hub's library"),
    "SSL_CERT_FILE": Ignored("the TLS library"),
    "HTTPS_PROXY": Ignored("pip, when it fetches the starter model"),
    "HTTP_PROXY": Ignored("pip, when it fetches the starter model"),
}

_OFF = frozenset({"", "0", "false", "no"})


def translate_flags(arguments: Sequence[str]) -> list[str]:
    """Spell upstream's flags of `exo up` our way; `UsageError` for one that is refused."""
    translated: list[str] = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        match FLAGS.get(name):
            case Renamed(ours=ours, value=""):
                translated.append(f"{ours}{equals}{value}")
            case Renamed(ours=ours, value=fixed):
                translated.append(f"{ours}={fixed}")
            case Refused(why=why):
                raise UsageError(f"{name}: {why}")
            case _:
                translated.append(argument)
    return translated


def translate_variables(environment: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Give our variables with their value and the name they were read from.

    Ours wins over a translated one. `SettingsError` for one that is refused; a refused switch that
    is set to off is no wish, and passes.
    """
    found = {name: (value, name) for name, value in environment.items() if name not in VARIABLES or _is_kept(name)}
    for name in VARIABLES.keys() & environment.keys():
        value, fate = environment[name], VARIABLES[name]
        if isinstance(fate, Refused) and value.lower() not in _OFF:
            raise SettingsError(f"environment variable {name}: {fate.why}")
        if isinstance(fate, Renamed) and not (fate.value and value.lower() in _OFF):
            given = str(Path("~") / value) if fate.below_home else value
            found.setdefault(fate.ours, (fate.value or given, name))
    return found


def _is_kept(name: str) -> bool:
    return isinstance(VARIABLES[name], Kept)
