"""Measures the ways to one peer: every address it has, one after the other. Used by `peers.py`."""

import asyncio

import structlog

from exo.broker.addresses import AddressError, parse_address
from exo.broker.cluster_frames import FrameError, Greeting
from exo.broker.cluster_stream import Stream
from exo.broker.dialing import Dialler
from exo.broker.greeting import RefusedError
from exo.broker.peering import LinkSample, Peer
from exo.broker.probes import measure

log = structlog.get_logger(__name__)


async def measure_addresses(dialler: Dialler, peer: Peer, *, bandwidth: bool) -> list[LinkSample]:
    """Give one sample for each pair of a local and a remote address over which the peer answers."""
    texts = dict.fromkeys((peer.address, *peer.hello.addresses))
    # Dialled together, because dead addresses take seconds; measured one by one, because they share us.
    turn = asyncio.Lock()
    surveys = (_measure_one(dialler, peer, text, turn=turn, bandwidth=bandwidth) for text in texts)
    samples = await asyncio.gather(*surveys)
    found = {(one.local_address, one.remote_address): one for one in samples if one is not None}
    return list(found.values())


async def _measure_one(
    dialler: Dialler, peer: Peer, text: str, *, turn: asyncio.Lock, bandwidth: bool
) -> LinkSample | None:
    samples: list[LinkSample] = []

    async def use(stream: Stream, greeting: Greeting) -> None:
        if greeting.node != peer.hello.node:
            return
        async with turn:
            found = await measure(stream, bandwidth=bandwidth)
        samples.append(
            LinkSample(
                local_address=stream.local,
                remote_address=stream.remote,
                latency=found.latency,
                bandwidth=found.bandwidth,
            )
        )

    try:
        await dialler.open(parse_address(text), purpose="measure", use=use)
    except (OSError, EOFError, FrameError, AddressError, RefusedError) as error:
        log.debug("an address cannot be measured", address=text, name=peer.hello.name, reason=str(error))
    return samples[0] if samples else None
