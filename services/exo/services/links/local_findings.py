"""What is wrong with one Mac's Thunderbolt ports, as far as this Mac alone can tell. Pure.

What only shows from both ends is in `exo.streams.topology`.
"""

from collections.abc import Iterator

from exo.streams.findings import NodeFinding
from exo.streams.links import Thunderbolt

_BESIDE_ETHERNET = "en2"
"""The receptacle next to the Ethernet socket of a Mac Studio: its RDMA does not work reliably (upstream's notes)."""


def find_port_findings(thunderbolt: Thunderbolt) -> Iterator[NodeFinding]:
    """Look at each port with a cable to another Mac."""
    linked = [port for port in thunderbolt.ports if port.peer]
    if thunderbolt.rdma != "enabled":
        return
    if any(port.interface == _BESIDE_ETHERNET for port in linked):
        yield NodeFinding(
            code="rdma_port_beside_ethernet",
            message=f"a cable to another Mac is in {_BESIDE_ETHERNET}, on a Mac Studio the port next to Ethernet",
            remedy="move it to another port: RDMA does not work there reliably",
        )
    if thunderbolt.bridge and linked:
        yield NodeFinding(
            code="rdma_behind_bridge",
            message="the Thunderbolt bridge holds the ports that RDMA needs for itself",
            remedy="`sudo ops/units/rdma/setup.sh` dissolves it and gives each port its own service; docs/rdma.md",
        )
    missing = [port.interface or port.receptacle for port in linked if not port.rdma]
    if missing:
        yield NodeFinding(
            code="rdma_device_missing",
            message=f"RDMA is on, but the ports {', '.join(missing)} have no RDMA device",
            remedy="use Thunderbolt 5 cables and ports; `ibv_devices` lists what macOS offers",
        )
