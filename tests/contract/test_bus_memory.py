"""`MemoryBus` under the conformance suite."""

import pytest

from exo.broker.memory import MemoryBus
from support.bus_conformance import BusConformance


class TestMemoryBus(BusConformance):
    @pytest.fixture
    async def bus(self) -> MemoryBus:
        return MemoryBus()

    @pytest.fixture
    async def other(self, bus: MemoryBus) -> MemoryBus:
        return MemoryBus(bus.server)
