"""Nodes: emptied for maintenance, and taken back."""

import msgspec
from litestar import delete, post
from litestar.params import FromPath

from exo.gateway.commands import now_ms
from exo.gateway.errors import GatewayError
from exo.gateway.gateway import Gateway, Here
from exo.streams.codes import Code
from exo.streams.commands import DrainNode
from exo.streams.ids import NodeId, new_command_id
from exo.streams.state import State


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """`tasks_left` are the requests that its instances still work on."""

    node_id: str
    name: str
    draining: bool
    tasks_left: int


@post("/v1/nodes/{node:str}/drain", status_code=200, summary="Drain a node")
async def drain_node(gateway: Here, node: FromPath[str]) -> Drained:
    """By id or name: it finishes what it has and gets nothing new. Ask again to see how much is left."""
    return await _switch(gateway, node, on=True)


@delete("/v1/nodes/{node:str}/drain", status_code=200, summary="Take a drained node back")
async def undo_drain(gateway: Here, node: FromPath[str]) -> Drained:
    """It gets requests and instances again; so it does when it is started anew."""
    return await _switch(gateway, node, on=False)


async def _switch(gateway: Gateway, name: str, *, on: bool) -> Drained:
    node = find_node(gateway.state, name)
    if gateway.state.nodes[node].draining != on:
        await gateway.commander.execute(DrainNode(command_id=new_command_id(), issued_at=now_ms(), node=node, on=on))
    state = gateway.state
    record = state.nodes[node]
    return Drained(node_id=node, name=record.facts.name, draining=record.draining, tasks_left=count_tasks(state, node))


def find_node(state: State, name: str) -> NodeId:
    """Give the node of that id or name, or the only one whose id begins so; 404 with the names there are."""
    if name in state.nodes:
        return NodeId(name)
    named = [node for node in state.nodes.values() if node.facts.name == name]
    begun = [node for node in state.nodes.values() if name and node.id.startswith(name)]
    present = [node for node in named if node.online] or named or begun
    if len(present) == 1:
        return present[0].id
    if present:
        ids = ", ".join(node.id for node in present)
        raise GatewayError(
            Code.NODE_NOT_FOUND,
            f"{name!r} is the name of several nodes, or begins several ids; say which by id: {ids}.",
        )
    known = ", ".join(sorted({node.facts.name for node in state.nodes.values()}))
    raise GatewayError(Code.NODE_NOT_FOUND, f"No node {name!r} has joined. There are: {known}.")


def count_tasks(state: State, node: NodeId) -> int:
    """Count the requests at work on instances that a node takes part in."""
    shared = {key for key, item in state.instances.items() if any(shard.node == node for shard in item.shards)}
    return sum(task.instance in shared for task in state.tasks.values())
