"""`NatsBus` on a real nats-server under the conformance suite."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from exo.broker.hub import Hub
from exo.broker.nats_bus import NatsBus
from support.bus_conformance import BusConformance
from support.nats import another_bus, running_hub


class TestNatsBus(BusConformance):
    @pytest.fixture
    async def hub(self, tmp_path: Path) -> AsyncIterator[Hub]:
        async with running_hub(tmp_path) as hub:
            yield hub

    @pytest.fixture
    def bus(self, hub: Hub) -> NatsBus:
        return hub.bus

    @pytest.fixture
    async def other(self, hub: Hub) -> AsyncIterator[NatsBus]:
        async with another_bus(hub) as bus:
            yield bus
