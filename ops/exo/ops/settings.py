"""Every setting of a node: its type, range, meaning, default, and how it is spelt.

`exo.ops.layers` fills it from `config.toml`, the environment and the command line; `exo up` is
composed from it. `docs/settings.md` lists the same table, and a test compares the two.
"""

import socket
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec.structs import FieldInfo, fields

VARIABLE_PREFIX = "EXO_"

Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]
Switch = Literal["auto", "on", "off"]


def _about(text: str, *, flag: str = "", in_file: bool = True, private: bool = False) -> msgspec.Meta:
    """Describe a setting: what it does, the flag of `exo up`, and whether `config.toml` may hold it.

    A `private` one is never shown, not even when it cannot be read.
    """
    return msgspec.Meta(description=text, extra={"flag": flag, "in_file": in_file, "private": private})


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one node runs."""

    data_dir: Annotated[
        Path | None,
        _about("one directory for everything, instead of the system's usual places", flag="--data-dir", in_file=False),
    ] = None
    name: Annotated[
        str, msgspec.Meta(min_length=1, max_length=64), _about("what people call this node", flag="--name")
    ] = msgspec.field(default_factory=socket.gethostname)
    namespace: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=64),
        _about("name of the cluster; nodes of one name join each other, all others stay apart", flag="--namespace"),
    ] = msgspec.field(default_factory=lambda: version("exo"))
    bootstrap_peers: Annotated[
        tuple[str, ...],
        _about(
            "nodes to dial at start: `host`, `host:port` or a multiaddress as `/ip4/HOST/tcp/PORT`, "
            "`/dns4/NAME/tcp/PORT`",
            flag="--join",
        ),
    ] = ()
    discovery: Annotated[bool, _about("look for nodes on the local network by multicast", flag="--no-discovery")] = True
    cluster_port: Annotated[
        Port,
        _about("port where nodes meet; unless it was named, a taken one is left for a free one", flag="--cluster-port"),
    ] = 52414
    local: Annotated[bool, _about("listen on loopback only and look for nobody by multicast", flag="--local")] = False
    cluster_secret: Annotated[
        str, _about("the secret that closes the cluster; wins over every file", in_file=False, private=True)
    ] = ""
    cluster_secret_file: Annotated[
        Path | None,
        _about("file with the secret; unset takes `cluster.secret` beside `config.toml`", flag="--cluster-secret-file"),
    ] = None
    host: Annotated[
        str, _about("address that the API listens on; `0.0.0.0` opens it to the network", flag="--host")
    ] = "127.0.0.1"
    port: Annotated[Port, _about("port of the API; 0 takes any free one", flag="--port")] = 52415
    no_auth: Annotated[
        bool, _about("let everybody use an API that is open to the network, without a key", flag="--no-auth")
    ] = False
    api: Annotated[bool, _about("serve the API and the dashboard from this node", flag="--no-api")] = True
    worker: Annotated[bool, _about("let models be placed on this node", flag="--no-worker")] = True
    offline: Annotated[bool, _about("never fetch anything from the internet", flag="--offline")] = False
    autoload: Annotated[bool, _about("load a known model when a request asks for it", flag="--autoload")] = False
    models: Annotated[tuple[str, ...], _about("models to add when absent and to place at start", flag="--model")] = ()
    verbosity: Annotated[
        int,
        msgspec.Meta(ge=-1, le=2),
        _about("-1 warnings only, 0 normal, 1 DEBUG with dates, 2 libraries' DEBUG too", flag="-v, -vv, -q"),
    ] = 0
    default_models_dir: Annotated[
        Path | None, _about("where models are written first; `models` in the data directory when unset")
    ] = None
    models_dirs: Annotated[tuple[Path, ...], _about("more directories that models may be written to")] = ()
    models_read_only_dirs: Annotated[
        tuple[Path, ...], _about("directories with models that are never written to or deleted from")
    ] = ()
    max_concurrent_requests: Annotated[
        int,
        msgspec.Meta(ge=1, le=1024),
        _about("requests that one runner works on at once", flag="--max-concurrent-requests"),
    ] = 16
    max_queued_requests: Annotated[
        int, msgspec.Meta(ge=0, le=65536), _about("requests that may wait at one runner; more are refused")
    ] = 256
    max_instance_retries: Annotated[
        int, msgspec.Meta(ge=1, le=100), _about("starts of a failing runner before its instance is removed")
    ] = 3
    request_timeout: Annotated[
        float, msgspec.Meta(ge=0), _about("seconds until an unfinished request is ended; 0 for never")
    ] = 0
    context_length: Annotated[
        int,
        msgspec.Meta(ge=0),
        _about("tokens to reserve memory for when a placement names none; 0 leaves it to the model's card"),
    ] = 0
    max_body_mb: Annotated[
        int, msgspec.Meta(ge=1, le=60), _about("largest request body that the API takes, in MB; at most 60")
    ] = 32
    keep_alive: Annotated[
        float, msgspec.Meta(gt=0, le=60), _about("seconds of silence on a stream before a keep-alive comment")
    ] = 10
    stall_timeout: Annotated[
        float, msgspec.Meta(gt=0, le=600), _about("seconds that a client may take no data before it is cut off")
    ] = 30
    shutdown_grace: Annotated[
        float, msgspec.Meta(ge=0, le=600), _about("seconds that running requests get to end when the node stops")
    ] = 2
    memory_available_mb: Annotated[
        int, msgspec.Meta(ge=0), _about("what this node and its models may take together, in MB; 0 asks the machine")
    ] = 0
    prefill_step: Annotated[
        int, msgspec.Meta(ge=0), _about("tokens of a prompt processed per step; 0 leaves it to the engine")
    ] = 0
    dense_weights: Annotated[
        Switch, _about("compute quantized models dense: faster on a CPU, takes more memory; `auto` decides by both")
    ] = "auto"
    blas: Annotated[
        str, _about("path of the OpenBLAS for MLX on a Linux CPU, `bundled` for MLX's own; empty finds one")
    ] = ""
    blas_threads: Annotated[int, msgspec.Meta(ge=1, le=256), _about("threads of the matrix library in each runner")] = 1
    scripted: Annotated[
        dict[str, float],
        _about("speed and faults of the built-in model exo/scripted, as `tokens_per_second=50,load_seconds=2`"),
    ] = {}
    http_hosts: Annotated[
        tuple[str, ...], _about("names, beside its addresses and localhost, under which the API answers")
    ] = ()
    http_origins: Annotated[
        tuple[str, ...], _about("origins of web pages elsewhere that may call the API, as `https://chat.example`")
    ] = ()
    macmon_path: Annotated[
        Path | None, _about("the macmon to read a Mac's GPU and power with; unset looks on PATH")
    ] = None
    nats_server: Annotated[
        Path | None, _about("the nats-server to run; unset looks on PATH, then in the installed package")
    ] = None
    nats_port: Annotated[
        Port,
        _about("port of the message broker while this node is hub; 0 takes the one below the cluster port, if it can"),
    ] = 0


def runner_environment(settings: Settings) -> dict[str, str]:
    """Give the variables that runners read for themselves, before they load anything."""
    return {"EXO_BLAS": settings.blas} if settings.blas else {}


class About(msgspec.Struct, frozen=True):
    """What the documentation and the loader know of one setting."""

    name: str
    description: str
    flag: str
    in_file: bool
    private: bool
    type: Any

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return VARIABLE_PREFIX + self.name.upper()


@cache
def describe_settings() -> Mapping[str, About]:
    """Give every setting by name, in the order they are declared."""
    hints = get_type_hints(Settings, include_extras=True)
    return {field.name: _describe(field, hints[field.name]) for field in fields(Settings)}


def _describe(field: FieldInfo, hint: Any) -> About:
    meta = next(item for item in hint.__metadata__ if isinstance(item, msgspec.Meta) and item.extra)
    extra: Mapping[str, Any] = meta.extra or {}
    return About(field.name, meta.description or "", extra["flag"], extra["in_file"], extra["private"], hint)
