"""API keys and drained nodes: how they are decided, folded, and what placement and requests make of them."""

from typing import Any

import pytest
from msgspec.structs import replace

from exo.services.catalog.service import Catalog
from exo.services.master.decide import Circumstances, decide
from exo.services.placement.check import check
from exo.services.placement.place import PlaceOptions, place
from exo.streams import commands as c
from exo.streams import events as e
from exo.streams.codes import Code
from exo.streams.ids import BootId, CommandId, InstanceId, KeyId, NodeId, RunnerId
from exo.streams.instances import Instance, Ready
from exo.streams.keys import ApiKey, Scope
from exo.streams.placements import Unplaceable
from exo.streams.state import State
from exo.streams.views import least_busy_instance
from support.services import (
    BOOT,
    MODEL,
    NODE,
    NOW,
    fold,
    joined_state,
    make_card,
    make_facts,
    make_instance,
    make_memory,
    make_task,
)

OTHER = NodeId("node-2")
COMMAND = CommandId("command-1")
KEY = ApiKey(id=KeyId("key-1"), name="laptop", scopes=("infer",), sha256="a" * 64)


def ask(kind: Any, state: State, **fields: Any) -> e.Decision:
    given = Circumstances(state, {NODE: make_memory()}, Catalog((make_card(),)), NOW)
    return decide(kind(command_id=COMMAND, issued_at=NOW, **fields), given)


def drain(state: State, node: NodeId = NODE, *, on: bool = True) -> State:
    return fold(state, ask(c.DrainNode, state, node=node, on=on), cause=COMMAND)


def test_a_key_is_added_with_the_masters_time_and_revoked() -> None:
    state = joined_state()
    added = ask(c.AddApiKey, state, key=KEY)
    assert added == e.ApiKeyAdded(key=replace(KEY, created_at=NOW))
    state = fold(state, added, cause=COMMAND)
    assert state.api_keys == {KEY.id: replace(KEY, created_at=NOW)}
    receipt = state.receipts.get(COMMAND)
    assert receipt is not None
    assert receipt.subject_id == KEY.id
    state = fold(state, ask(c.RevokeApiKey, state, key=KEY.id))
    assert state.api_keys == {}


@pytest.mark.parametrize(
    "key",
    [
        replace(KEY, id=KeyId("a.b")),
        replace(KEY, sha256="exo-secret"),
        replace(KEY, name=""),
        replace(KEY, scopes=()),
    ],
)
def test_a_malformed_key_is_rejected(key: ApiKey) -> None:
    refused = ask(c.AddApiKey, joined_state(), key=key)
    assert isinstance(refused, e.CommandRejected)
    assert refused.code == Code.INVALID_REQUEST
    assert key.sha256 not in refused.reason


def test_what_is_not_there_can_be_neither_revoked_nor_drained() -> None:
    revoked = ask(c.RevokeApiKey, joined_state(), key=KEY.id)
    drained = ask(c.DrainNode, joined_state(), node=OTHER)
    assert isinstance(revoked, e.CommandRejected)
    assert isinstance(drained, e.CommandRejected)
    assert (revoked.code, drained.code) == (Code.KEY_NOT_FOUND, Code.NODE_NOT_FOUND)


@pytest.mark.parametrize(
    ("scopes", "allowed"), [(("infer",), {"infer"}), (("read",), {"read"}), (("admin",), {"infer", "read", "admin"})]
)
def test_admin_includes_the_other_scopes(scopes: tuple[Scope, ...], allowed: set[Scope]) -> None:
    every: tuple[Scope, ...] = ("infer", "read", "admin")
    assert {scope for scope in every if replace(KEY, scopes=scopes).allows(scope)} == allowed


def test_a_draining_node_is_not_placed_on_and_says_why() -> None:
    state = drain(joined_state(held=(make_card(),)))
    memory = {NODE: make_memory()}
    refused = place(
        make_card(), instance=InstanceId("new"), state=state, memory=memory, options=PlaceOptions(), now=NOW
    )
    assert isinstance(refused, Unplaceable)
    assert "drain" in refused.reason
    alone, beside_another = (
        check(make_instance(), state=given, memory=memory)
        for given in (state, joined_state(held=(make_card(),), node=OTHER, state=state))
    )
    assert alone is not None
    assert "every node that runs models is being drained" in alone.reason
    assert beside_another is not None
    assert f"node {NODE} is being drained" in beside_another.reason
    assert not isinstance(
        place(
            make_card(),
            instance=InstanceId("new"),
            state=drain(state, on=False),
            memory=memory,
            options=PlaceOptions(),
            now=NOW,
        ),
        Unplaceable,
    )


def two_copies() -> tuple[State, Instance, Instance]:
    """A State with a ready instance on each of two nodes."""
    state = joined_state()
    state = fold(state, e.NodeJoined(node=OTHER, facts=make_facts()))
    here = make_instance()
    shard = replace(here.shards[0], node=OTHER, runner=RunnerId("elsewhere-0"))
    there = replace(here, id=InstanceId("elsewhere"), shards=(shard,))
    for instance in (here, there):
        state = fold(state, e.InstancePlaced(instance=instance))
        owner = instance.shards[0]
        fact = e.RunnerStatusChanged(node=owner.node, runner=owner.runner, status=Ready())
        state = fold(state, fact)
    return state, here, there


def test_requests_go_elsewhere_but_to_a_draining_node_when_nothing_else_is_ready() -> None:
    state, here, there = two_copies()
    assert least_busy_instance(state, MODEL) == here
    state = drain(state)
    assert least_busy_instance(state, MODEL) == there
    assert least_busy_instance(drain(state, OTHER), MODEL) == here


def test_only_a_new_start_of_the_node_ends_its_draining() -> None:
    state = drain(joined_state(held=(make_card(),)))
    again = e.NodeJoined(node=NODE, facts=make_facts())
    assert fold(state, again, boot=BOOT).nodes[NODE].draining
    assert not fold(state, again, boot=BootId("boot-2")).nodes[NODE].draining


def test_a_silent_copy_gets_requests_only_when_no_other_is_ready() -> None:
    state, here, there = two_copies()
    busy = fold(state, e.TaskAssigned(task=make_task(instance=there.id)))
    assert least_busy_instance(busy, MODEL) == here
    assert least_busy_instance(busy, MODEL, unheard={NODE}) == there
    assert least_busy_instance(busy, MODEL, unheard={NODE, OTHER}) == here
