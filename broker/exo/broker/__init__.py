"""The only door to NATS: the bus, its server, and the guards around both."""

from exo.broker.bus import Bus
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer

__all__ = ["Bus", "MemoryBus", "MemoryServer"]
