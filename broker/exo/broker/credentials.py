"""What makes a node a member: the cluster key, and everything that is derived from it.

Used by `peers.py` for the greeting and by `cluster.py` for NATS. With a secret the key is known to
those who were given it; without one it follows from the cluster's name, which keeps other people's
clusters apart and attackers not. Roles guard against mistakes, not against members: who has the key
derives every role.
"""

import hashlib
import hmac
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, cast

import nkeys
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from exo.broker.certificates import ServerTls, TlsFiles, issue_certificate, make_certificate
from exo.broker.private_files import write_private

_nkeys = cast("Any", nkeys)  # it carries no types

_LABEL: Final = b"exo-cluster-key"
_TLS: Final = "exo-nats-tls"
_AUTHORITY: Final = "exo cluster"


class Credentials:
    """All keys of one cluster; the same on every node that was given the same name and secret."""

    def __init__(self, cluster: str, secret: str = "") -> None:
        self.cluster = cluster
        self.closed = bool(secret)
        """Whether a secret keeps strangers out."""
        # An open cluster must not share its key with a closed one whose secret is the name.
        material = b"secret:" + secret.encode() if secret else b"name:" + cluster.encode()
        self._key = _derive(material, salt=cluster.encode(), info=_LABEL)

    def seed(self, role: str) -> str:
        """Give the nkey seed of a role: `hub`, `master`, `reader` or `node-<id>`."""
        seed: bytes = _nkeys.encode_seed(self._expand(f"exo-nats-nkey:{role}"), prefix=_nkeys.PREFIX_BYTE_USER)
        return seed.decode()

    def public_key(self, role: str) -> str:
        """Give the public half of a role's nkey, as the server's configuration lists it."""
        public: bytes = _nkeys.from_seed(bytearray(self.seed(role).encode())).public_key
        return public.decode()

    def proof(self, *parts: bytes) -> bytes:
        """Give what only a member can compute about these parts (HMAC-SHA256)."""
        # With their lengths, so that no two lists of parts are the same message.
        message = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
        return hmac.digest(self._expand("exo-cluster-port"), message, hashlib.sha256)

    def write_tls(self, directory: Path) -> TlsFiles:
        """Write the certificate and key with which members prove themselves to the hub's server, and its authority."""
        return make_certificate(self._expand(_TLS), name=_AUTHORITY).write(directory)

    def write_server_tls(self, directory: Path, *, members: TlsFiles, hosts: Collection[str]) -> ServerTls:
        """Write what a hub shows at these names and addresses; `members` are the files of `write_tls`."""
        issued = issue_certificate(self._expand(_TLS), authority_name=_AUTHORITY, hosts=hosts)
        files = ServerTls(directory / "server.crt", directory / "server.key", members.certificate)
        write_private(files.certificate, issued.certificate)
        write_private(files.key, issued.key)
        return files

    def _expand(self, info: str) -> bytes:
        return _derive(self._key, salt=b"", info=info.encode())


def _derive(material: bytes, *, salt: bytes, info: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(material)
