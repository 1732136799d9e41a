"""Where a node keeps its things.

Linux follows XDG, macOS keeps all under `~/.exo`; with a data directory everything lies below that
one. Composed by `exo.ops.layers`; only names, nothing is created here but by `prepare`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

PRIVATE = 0o700
"""Of the directories: the cluster's secret and the broker's store are nobody else's business."""


class Paths(msgspec.Struct, frozen=True):
    """The three roots, and the files below them."""

    config: Path
    data: Path
    cache: Path

    @property
    def config_file(self) -> Path:
        """The settings."""
        return self.config / "config.toml"

    @property
    def secret_file(self) -> Path:
        """The cluster's secret, once it is closed; 0600."""
        return self.config / "cluster.secret"

    @property
    def service_environment(self) -> Path:
        """The settings of the node that the system's service manager starts; 0600."""
        return self.config / "service.env"

    @property
    def node_id_file(self) -> Path:
        """The id of this machine, drawn once."""
        return self.data / "node_id"

    @property
    def machine_file(self) -> Path:
        """The fingerprint of the machine that drew the id."""
        return self.data / "machine"

    @property
    def lock_file(self) -> Path:
        """Held by the one node that uses the data directory."""
        return self.data / "lock"

    @property
    def node_file(self) -> Path:
        """How the other commands find the running node."""
        return self.data / "node.json"

    @property
    def models(self) -> Path:
        """Where models are written, unless a setting says otherwise."""
        return self.data / "models"

    @property
    def store(self) -> Path:
        """The message broker's."""
        return self.data / "nats"

    @property
    def standby(self) -> Path:
        """What this node knew of the State of each cluster when it last ran in it."""
        return self.data / "standby"

    @property
    def peers_file(self) -> Path:
        """Where other nodes were reached in earlier runs."""
        return self.data / "peers.json"

    @property
    def logs(self) -> Path:
        """The rotated log files."""
        return self.cache / "exo_log"

    @property
    def log_file(self) -> Path:
        """The newest of them."""
        return self.logs / "exo.log"

    @property
    def configuration(self) -> tuple[Path, ...]:
        """All that exo keeps among the configuration."""
        return self.config_file, self.secret_file, self.service_environment

    @property
    def state(self) -> tuple[Path, ...]:
        """All that a node keeps among the data, but for the models."""
        own = (self.node_id_file, self.machine_file, self.node_file, self.peers_file)
        return *own, self.standby, self.store, self.lock_file

    @property
    def caches(self) -> tuple[Path, ...]:
        """All that can be made anew."""
        return self.logs, self.onboarding_file

    @property
    def onboarding_file(self) -> Path:
        """Notes that somebody has seen the dashboard's tour."""
        return self.cache / "onboarding_complete"

    def prepare(self) -> None:
        """Create the directories, readable by their owner only."""
        for directory in (self.config, self.data, self.cache, self.logs):
            directory.mkdir(mode=PRIVATE, parents=True, exist_ok=True)


def find_paths(data_dir: Path | None = None, environment: Mapping[str, str] | None = None) -> Paths:
    """Give the directories of this user. A relative `data_dir` is one of the current directory."""
    environment = os.environ if environment is None else environment
    if data_dir is not None:
        root = Path(os.path.abspath(data_dir))  # noqa: PTH100 - `resolve` would replace the user's own symbolic links
        return Paths(config=root, data=root, cache=root / "cache")
    home = Path(environment.get("HOME") or Path.home())
    if sys.platform != "linux":
        return Paths(config=home / ".exo", data=home / ".exo", cache=home / ".exo" / "cache")
    return Paths(
        config=_find_xdg("XDG_CONFIG_HOME", home / ".config", environment),
        data=_find_xdg("XDG_DATA_HOME", home / ".local" / "share", environment),
        cache=_find_xdg("XDG_CACHE_HOME", home / ".cache", environment),
    )


def _find_xdg(variable: str, default: Path, environment: Mapping[str, str]) -> Path:
    """Follow the base directory specification: a path that is not absolute is ignored."""
    chosen = Path(environment.get(variable, ""))
    return (chosen if chosen.is_absolute() else default) / "exo"
