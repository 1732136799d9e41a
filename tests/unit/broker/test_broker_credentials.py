import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import nkeys
import pytest

from exo.broker.binary import find_binary
from exo.broker.certificates import TlsFiles, make_certificate
from exo.broker.credentials import Credentials
from support.nats import wait_until


def test_every_node_derives_the_same_and_another_secret_gives_another() -> None:
    one, same, other = Credentials("home", "s"), Credentials("home", "s"), Credentials("home", "t")
    assert one.seed("hub") == same.seed("hub") != other.seed("hub")
    assert one.proof(b"x") == same.proof(b"x") != other.proof(b"x")
    assert Credentials("work", "s").seed("hub") != one.seed("hub")
    assert one.closed
    assert not Credentials("home").closed


def test_a_secret_that_is_the_name_is_not_the_open_key() -> None:
    assert Credentials("home", "home").proof() != Credentials("home").proof()


def test_roles_have_keys_of_their_own_that_nkeys_can_read() -> None:
    credentials = Credentials("home", "s")
    roles = ["hub", "master", "reader", "node-a", "node-b"]
    assert len({credentials.public_key(role) for role in roles}) == len(roles)
    key: Any = cast("Any", nkeys).from_seed(bytearray(credentials.seed("hub").encode()))
    key.verify(b"nonce", key.sign(b"nonce"))
    assert credentials.public_key("hub").startswith("U")


def test_a_proof_depends_on_where_one_part_ends() -> None:
    credentials = Credentials("home")
    assert credentials.proof(b"ab", b"c") != credentials.proof(b"a", b"bc")


def test_the_files_are_equal_on_all_nodes_and_only_for_us(tmp_path: Path) -> None:
    one, other = (Credentials("home", "s").write_tls(tmp_path / name) for name in ("one", "other"))
    assert one.certificate.read_bytes() == other.certificate.read_bytes()
    assert one.key.read_bytes() == other.key.read_bytes()
    assert {file.stat().st_mode & 0o777 for file in (one.certificate, one.key)} == {0o600}
    assert sorted(file.name for file in one.key.parent.iterdir()) == ["cluster.crt", "cluster.key"]


def test_a_certificate_outlives_every_clock() -> None:
    made = make_certificate(b"s" * 32, name="x")
    assert made == make_certificate(b"s" * 32, name="x")
    assert made.fingerprint != make_certificate(b"t" * 32, name="x").fingerprint


async def test_nats_server_and_members_prove_themselves_to_each_other(tmp_path: Path) -> None:
    files = Credentials("home", "s").write_tls(tmp_path / "server")
    config = tmp_path / "nats.conf"
    config.write_text(
        'listen: "127.0.0.1:-1"\n'
        f'ports_file_dir: "{tmp_path}"\n'
        f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}", ca_file: "{files.certificate}"\n'
        "verify: true, handshake_first: true }\n"
    )
    binary = await find_binary(None)
    server = await asyncio.create_subprocess_exec(
        str(binary.path), "-c", str(config), stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        await wait_until(lambda: any(tmp_path.glob("*.ports")), what="the server is up")
        port = int((await read_text(next(tmp_path.glob("*.ports")))).partition("127.0.0.1:")[2].partition('"')[0])
        member = Credentials("home", "s").write_tls(tmp_path / "member")
        assert (await read_greeting(port, member.client_context())).startswith(b"INFO")
        stranger = Credentials("home", "t").write_tls(tmp_path / "stranger")
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
            await read_greeting(port, stranger.client_context())
        # One that does not care who the server is, is still not let in.
        careless = stranger.client_context()
        careless.verify_mode = ssl.CERT_NONE
        with pytest.raises(ssl.SSLError):
            await read_greeting(port, careless)
    finally:
        server.terminate()
        await server.wait()


async def test_the_server_context_takes_members_only(tmp_path: Path) -> None:
    member, stranger = (Credentials("home", name).write_tls(tmp_path / name) for name in ("s", "t"))
    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=member.server_context())
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await read_greeting(port, member.client_context()) == b"hello\n"
        heard = b""
        with suppress(ssl.SSLError, ConnectionError):
            heard = await read_greeting(port, trust_anything(stranger))
        assert heard == b""


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"hello\n")
    await writer.drain()
    writer.close()


def trust_anything(files: TlsFiles) -> ssl.SSLContext:
    context = files.client_context()
    context.verify_mode = ssl.CERT_NONE
    return context


async def read_text(file: Path) -> str:
    await wait_until(lambda: bool(file.read_text().strip()), what=f"{file.name} is written")
    return file.read_text()


async def read_greeting(port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await reader.readline()
    finally:
        writer.close()
