"""The only door to NATS: the bus, its server, and the guards around both."""

from exo.broker.bus import Bus
from exo.broker.hub import Hub, HubSettings
from exo.broker.leases import Lease
from exo.broker.memory import MemoryBus
from exo.broker.memory_server import MemoryServer
from exo.broker.nats_bus import NatsBus
from exo.broker.policy import ConnectionSettings

__all__ = ["Bus", "ConnectionSettings", "Hub", "HubSettings", "Lease", "MemoryBus", "MemoryServer", "NatsBus"]
