"""Asks the node about the hardware of the cluster, or looks at this machine when none runs. Facts only."""

import sys

from msgspec.structs import replace

from exo.ops.client import NodeClient
from exo.ops.doctor_hardware import HardwareFacts
from exo.ops.errors import CommandError
from exo.ops.layers import Loaded
from exo.ops.links_view import FindingView, TopologyView
from exo.ops.node_file import read_node_file
from exo.services.hardware import find_hardware_faults


async def examine_hardware(loaded: Loaded, *, platform: str = sys.platform) -> HardwareFacts:
    """A running node has found it out already, and knows of the other nodes."""
    node = read_node_file(loaded.paths)
    if node is None or not node.api_url:
        return await _look(platform)
    try:
        async with NodeClient(node.api_url) as client:
            view = await client.get("/state/topology", TopologyView)
    except CommandError:
        # `exo.ops.examine` finds out by itself why the node does not answer, and says so.
        return await _look(platform)
    named = (replace(one, node=view.name(one.node) if one.node else "") for one in view.findings)
    return HardwareFacts(findings=tuple(named))


async def _look(platform: str) -> HardwareFacts:
    faults = await find_hardware_faults(platform=platform)
    return HardwareFacts(
        findings=tuple(FindingView(code=one.code, message=one.message, remedy=one.remedy) for one in faults)
    )
