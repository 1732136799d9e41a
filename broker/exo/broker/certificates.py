"""Ed25519 certificates: the one that a whole cluster derives, what that one issues, and the one of one boot.

Called by `credentials.py` (for NATS) and `cluster_port.py`. Nodes check no host names: a node has many
addresses and a cluster key is what counts. Clients that are not exo's do, so a hub shows a certificate
with its own addresses, issued by the cluster's. Nothing here talks to a network.
"""

import ipaddress
import ssl
import tempfile
from collections.abc import Collection
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from exo.broker.private_files import write_private

# The dates say nothing: who holds the key is a member, and a clock may be years off.
FROM: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNTIL: Final = datetime(9999, 12, 31, tzinfo=UTC)


class TlsFiles(msgspec.Struct, frozen=True):
    """A certificate that is its own authority, and its key, as PEM files of mode 0600.

    Members show it, and take of each other only it and what it issued.
    """

    certificate: Path
    key: Path

    def client_context(self) -> ssl.SSLContext:
        """Give a context that shows this certificate and takes of the server only what it issued."""
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


class ServerTls(msgspec.Struct, frozen=True):
    """The files of `nats-server`: what it shows (`cert_file`, `key_file`), and who may connect (`ca_file`)."""

    certificate: Path
    key: Path
    authority: Path


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
    builder = (
        _begin(key.public_key(), name=name, issuer=name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_list_usages(signs=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("exo")]), critical=False)
    )
    return _finish(builder.sign(key, None), key)


def issue_certificate(authority_seed: bytes, *, authority_name: str, hosts: Collection[str]) -> Certificate:
    """Make a server's certificate for these names and IP addresses, with a key of its own."""
    authority, key = Ed25519PrivateKey.from_private_bytes(authority_seed), Ed25519PrivateKey.generate()
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    builder = (
        _begin(key.public_key(), name="exo hub", issuer=authority_name)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_list_usages(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.SubjectAlternativeName([_name_host(host) for host in hosts]), critical=False)
    )
    return _finish(builder.sign(authority, None), key)


def _begin(public: Ed25519PublicKey, *, name: str, issuer: str) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(public)
        # Positive and at most 20 bytes, as RFC 5280 wants it.
        .serial_number(int.from_bytes(sha256(b"serial" + public.public_bytes_raw()).digest()[:16]) | 1)
        .not_valid_before(FROM)
        .not_valid_after(UNTIL)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _finish(certificate: x509.Certificate, key: Ed25519PrivateKey) -> Certificate:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    fingerprint = certificate.fingerprint(hashes.SHA256())
    return Certificate(certificate.public_bytes(serialization.Encoding.PEM), private, fingerprint)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _name_host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def trusting_context() -> ssl.SSLContext:
    """Give a client's context that takes any certificate: the greeting proves the server by its fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _list_usages(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
