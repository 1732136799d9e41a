"""The cluster's secret: how it is made, spelt, stored and found.

`exo cluster` writes it, `exo up` reads it; the broker derives every key from it. It stands in a 0600
file or in the environment, never on a command line that lives on, in a log, in `config.toml` or on
the bus.
"""

import base64
import re
import secrets
from pathlib import Path

import msgspec

from exo.ops.errors import SettingsError
from exo.ops.files import write_private
from exo.ops.paths import Paths
from exo.ops.settings import Settings

PREFIX = "exo1-"
SECRET_VARIABLE = "EXO_CLUSTER_SECRET"  # noqa: S105 - the name of the variable
_FORM = re.compile(r"exo1-[a-z2-7]{52}")
"""256 bits in base32. Nothing shorter: whoever sees one greeting may try secrets at home, at full speed."""


class ClusterSecret(msgspec.Struct, frozen=True):
    """What closes the cluster. `text` is empty while it is open, `origin` says where it was found."""

    text: str = ""
    origin: str = ""

    @property
    def closed(self) -> bool:
        """Whether there is one."""
        return bool(self.text)

    def __repr__(self) -> str:
        """Show where it came from, never what it is."""
        return f"ClusterSecret(closed={self.closed}, origin={self.origin!r})"


def new_secret() -> str:
    """Draw a secret of 256 bits."""
    return PREFIX + base64.b32encode(secrets.token_bytes(32)).decode().rstrip("=").lower()


def check_secret(text: str, *, source: str) -> str:
    """Give the secret as it is spelt; `SettingsError` for anything else, which is not shown."""
    spelt = text.strip().lower()
    if not _FORM.fullmatch(spelt):
        raise SettingsError(
            f"{source}: not a cluster secret, which is `{PREFIX}` and 52 letters and digits",
            remedy="copy it whole, or make one with `exo cluster secret`",
        )
    return spelt


def find_secret(settings: Settings, paths: Paths) -> ClusterSecret:
    """Give the secret this node runs with: the environment's, else the named file's, else the stored one."""
    if settings.cluster_secret:
        name = f"environment variable {SECRET_VARIABLE}"
        return ClusterSecret(check_secret(settings.cluster_secret, source=name), name)
    if settings.cluster_secret_file is not None:
        return _read(settings.cluster_secret_file)
    return _read(paths.secret_file) if paths.secret_file.exists() else ClusterSecret()


def _read(file: Path) -> ClusterSecret:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: {error}", remedy="name a file that holds the cluster's secret") from error
    return ClusterSecret(check_secret(text, source=str(file)), str(file))


def store_secret(paths: Paths, secret: str) -> None:
    """Keep the secret for this and every later start."""
    write_private(paths.secret_file, secret.encode() + b"\n")


def forget_secret(paths: Paths) -> bool:
    """Delete the stored secret; tells whether there was one."""
    try:
        paths.secret_file.unlink()
    except FileNotFoundError:
        return False
    return True
