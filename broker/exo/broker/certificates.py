"""Self-signed Ed25519 certificates: the one that a whole cluster derives, and the one of one boot.

Called by `credentials.py` (for NATS) and `cluster_port.py`. Nobody checks host names: a node has many
addresses and a cluster key is what counts. Nothing here talks to a network.
"""

import ssl
import tempfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from exo.broker.private_files import write_private

# The dates say nothing: who holds the key is a member, and a clock may be years off.
FROM: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNTIL: Final = datetime(9999, 12, 31, tzinfo=UTC)


class TlsFiles(msgspec.Struct, frozen=True):
    """A certificate that is its own authority, and its key, as PEM files of mode 0600.

    `nats-server` takes `certificate` as `cert_file` and as `ca_file`, `key` as `key_file`.
    """

    certificate: Path
    key: Path

    def client_context(self) -> ssl.SSLContext:
        """Give a context that shows this certificate and takes no other of the server."""
        return self._mutual(ssl.PROTOCOL_TLS_CLIENT)

    def server_context(self) -> ssl.SSLContext:
        """Give a context that shows this certificate and takes no other of a client."""
        return self._mutual(ssl.PROTOCOL_TLS_SERVER)

    def _mutual(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        context.load_verify_locations(self.certificate)
        return context


class Certificate(msgspec.Struct, frozen=True):
    """A certificate in PEM with its key in PEM, and the SHA-256 of its DER form."""

    certificate: bytes
    key: bytes
    fingerprint: bytes

    def write(self, directory: Path) -> TlsFiles:
        """Write both files."""
        files = TlsFiles(directory / "cluster.crt", directory / "cluster.key")
        write_private(files.certificate, self.certificate)
        write_private(files.key, self.key)
        return files

    def server_context(self) -> ssl.SSLContext:
        """Give a context that shows this certificate and asks the client for none."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The ssl module reads keys from files only.
        with tempfile.TemporaryDirectory(prefix="exo-") as directory:
            files = self.write(Path(directory))
            context.load_cert_chain(files.certificate, files.key)
        return context


def make_certificate(seed: bytes, *, name: str) -> Certificate:
    """Make the certificate of a 32 byte seed: the same bytes for the same seed and name, on every machine."""
    key = Ed25519PrivateKey.from_private_bytes(seed)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    public = key.public_key()
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        # Positive and at most 20 bytes, as RFC 5280 wants it.
        .serial_number(int.from_bytes(sha256(b"serial" + public.public_bytes_raw()).digest()[:16]) | 1)
        .not_valid_before(FROM)
        .not_valid_after(UNTIL)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_list_usages(), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("exo")]), critical=False)
        .sign(key, None)
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fingerprint = certificate.fingerprint(hashes.SHA256())
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM), private, fingerprint)


def trusting_context() -> ssl.SSLContext:
    """Give a client's context that takes any certificate: the greeting proves the server by its fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _list_usages() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
