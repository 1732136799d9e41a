"""Two nodes prove to each other that they have the cluster key, or say by name why they part.

Run by both ends of a fresh connection, from `cluster_port.py` and `dialing.py`. The proofs cover the
server's certificate, so nobody in the middle can pass them on, and both nonces, so nobody can repeat
them. Whoever refuses says so in a `Refused` frame first: that is how a person learns what to change.
"""

import asyncio
import hmac
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec

from exo.broker.cluster_frames import PROTOCOL, FrameError, Greeting, Proof, Refused
from exo.broker.cluster_stream import HANDSHAKE_TIMEOUT, Stream
from exo.broker.credentials import Credentials
from exo.broker.peering import PeersSettings, RefusalCode
from exo.streams.ids import SUBJECT_TOKEN

Wanted = TypeVar("Wanted", Greeting, Proof)


class RefusedError(Exception):
    """Raised when the two do not belong together. `greeting` is the other's, None when it never came."""

    def __init__(self, code: RefusalCode, reason: str, *, by_us: bool, greeting: Greeting | None) -> None:
        super().__init__(reason)
        self.code: RefusalCode = code
        self.reason = reason
        self.by_us = by_us
        self.greeting = greeting


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """What one end brings: who it is, its key, and the fingerprint of its own server certificate."""

    settings: PeersSettings
    credentials: Credentials
    port: int
    fingerprint: bytes


def make_greeting(party: Party, *, purpose: str) -> Greeting:
    """Say who we are, with a fresh nonce."""
    settings = party.settings
    return Greeting(
        protocol=PROTOCOL,
        cluster=settings.cluster,
        node=settings.node,
        boot=settings.boot,
        name=settings.name,
        version=settings.version,
        nonce=secrets.token_hex(32),
        port=party.port,
        purpose=purpose,
    )


def judge(ours: Greeting, theirs: Greeting) -> tuple[RefusalCode, str] | None:
    """Find a reason to refuse before any key is looked at."""
    if not SUBJECT_TOKEN.match(theirs.node) or not SUBJECT_TOKEN.match(theirs.boot):
        return "malformed", "its node or boot id has characters that an id cannot have"
    if theirs.protocol != ours.protocol:
        mine, other = f"{ours.name} speaks {ours.protocol}", f"{theirs.name} ({theirs.version}) {theirs.protocol}"
        return "version_incompatible", f"other protocol: {mine}, {other}; run the same version of exo on both"
    if theirs.cluster != ours.cluster:
        return "other_cluster", f"{theirs.name} is in cluster {theirs.cluster!r}, {ours.name} in {ours.cluster!r}"
    return None


def judge_proven(ours: Greeting, theirs: Greeting) -> tuple[RefusalCode, str] | None:
    """Find a reason to refuse a member: it is ourselves, or a clone."""
    if theirs.node != ours.node:
        return None
    if theirs.boot == ours.boot:
        return "same_node", "this is the node itself"
    return "duplicate_node", f"{ours.name} and {theirs.name} both run as node {ours.node}: a copied data directory"


async def greet_as_client(stream: Stream, party: Party, *, purpose: str = "peer") -> Greeting:
    """Give the greeting of the server that proved itself, or raise `RefusedError`, `OSError` or `TimeoutError`."""
    ours = make_greeting(party, purpose=purpose)
    async with _limited():
        await stream.send(ours)
        theirs = await _expect(stream, Greeting, greeting=None)
        await _refuse_if(stream, judge(ours, theirs), greeting=theirs)
        proofs = _Proofs(party.credentials, client=ours, server=theirs, fingerprint=stream.server_fingerprint)
        shown = await _expect(stream, Proof, greeting=theirs)
        await _check_proof(stream, shown, proofs.of_server, ours=ours, theirs=theirs, party=party)
        await stream.send(Proof(proofs.of_client))
        await _refuse_if(stream, judge_proven(ours, theirs), greeting=theirs)
    return theirs


async def greet_as_server(stream: Stream, party: Party) -> Greeting:
    """Give the greeting of the client that proved itself, or raise as `greet_as_client`."""
    ours = make_greeting(party, purpose="serve")
    async with _limited():
        theirs = await _expect(stream, Greeting, greeting=None)
        # First of all, so that the other knows who turns it away.
        await stream.send(ours)
        await _refuse_if(stream, judge(ours, theirs), greeting=theirs)
        proofs = _Proofs(party.credentials, client=theirs, server=ours, fingerprint=party.fingerprint)
        await stream.send(Proof(proofs.of_server))
        shown = await _expect(stream, Proof, greeting=theirs)
        await _check_proof(stream, shown, proofs.of_client, ours=ours, theirs=theirs, party=party)
        await _refuse_if(stream, judge_proven(ours, theirs), greeting=theirs)
    return theirs


@asynccontextmanager
async def _limited() -> AsyncGenerator[None]:
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT):
            yield
    except TimeoutError as error:
        # The kernel's own time-out has a text already.
        text = str(error) or f"connected, but the greeting was not done within {HANDSHAKE_TIMEOUT:g} s"
        raise TimeoutError(text) from error


async def refuse(stream: Stream, code: RefusalCode, reason: str, *, greeting: Greeting | None) -> RefusedError:
    """Tell the other end why, and give the error to raise."""
    await stream.send(Refused(code, reason))
    return RefusedError(code, reason, by_us=True, greeting=greeting)


class _Proofs:
    """What each end has to show, by this key."""

    def __init__(self, credentials: Credentials, *, client: Greeting, server: Greeting, fingerprint: bytes) -> None:
        said = [one.encode() for one in (client.nonce, server.nonce, client.node, server.node)]
        self.of_server: Final = credentials.proof(b"server", fingerprint, *said).hex()
        self.of_client: Final = credentials.proof(b"client", fingerprint, *said).hex()


async def _check_proof(
    stream: Stream, shown: Proof, wanted: str, *, ours: Greeting, theirs: Greeting, party: Party
) -> None:
    if not hmac.compare_digest(shown.value.encode(), wanted.encode()):
        # Of the same cluster and with another key: whoever has no secret knows that the other has one.
        lacks, has = (theirs, ours) if party.credentials.closed else (ours, theirs)
        reason = f"{lacks.name} does not have the cluster secret that {has.name} has"
        raise await refuse(stream, "secret_mismatch", reason, greeting=theirs)


async def _refuse_if(stream: Stream, verdict: tuple[RefusalCode, str] | None, *, greeting: Greeting) -> None:
    if verdict is not None:
        raise await refuse(stream, verdict[0], verdict[1], greeting=greeting)


async def _expect(stream: Stream, kind: type[Wanted], *, greeting: Greeting | None) -> Wanted:
    frame = await stream.read()
    if isinstance(frame, kind):
        return frame
    if isinstance(frame, Refused):
        raise RefusedError(frame.code, frame.reason, by_us=False, greeting=greeting)
    raise FrameError(f"expected {kind.__name__}, got {type(frame).__name__}")
