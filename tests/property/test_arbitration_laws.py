"""Whatever is cut, killed or put to sleep: once the links are whole again, there is one hub and all follow it."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exo.broker.arbitration import choose_hub, rank
from exo.broker.hello import Hello, Position
from exo.streams.ids import BootId, NodeId, SessionId
from support.arbitration_world import World

BOUND = 20.0
"""Seconds for the cluster to agree after the last fault: silence, loss, and patience with some nodes one by one."""

NAMES = ("a", "b", "c", "d", "e")

SESSIONS = (SessionId("s1"), SessionId("s2"), SessionId("s3"))


@st.composite
def positions(draw: st.DrawFn) -> Position:
    return Position(
        session=draw(st.sampled_from((SessionId(""), *SESSIONS))),
        applied=draw(st.integers(0, 5)),
        lineage=tuple(draw(st.lists(st.sampled_from(SESSIONS[:2]), max_size=2, unique=True))),
    )


@st.composite
def hellos(draw: st.DrawFn) -> Hello:
    name, since = draw(st.sampled_from(NAMES)), draw(st.integers(0, 3))
    return Hello(
        node=NodeId(name),
        boot=BootId("x"),
        name=name,
        version="1",
        started_at=since,
        role=draw(st.sampled_from(("starting", "lost", "hub"))),
        position=draw(positions()),
        hub_session=draw(st.sampled_from(SESSIONS)),
        hub_since=since,
        hub_addresses=("x:1",),
        present=draw(st.integers(1, 4)),
    )


crowds = st.lists(hellos(), min_size=1, max_size=5, unique_by=lambda hello: hello.node)


@given(crowds.flatmap(lambda crowd: st.tuples(st.just(crowd), st.permutations(crowd))))
def test_every_node_ranks_alike(both: tuple[list[Hello], list[Hello]]) -> None:
    crowd, shuffled = both
    assert rank(shuffled) == rank(crowd)
    assert choose_hub(shuffled) == choose_hub(crowd)


@given(crowds)
def test_state_is_not_thrown_away_for_a_node_without(crowd: list[Hello]) -> None:
    first = rank(crowd)[0]
    assert first.position.session or not any(hello.position.session for hello in crowd)


@given(st.lists(hellos(), min_size=2, max_size=2, unique_by=lambda hello: hello.node))
def test_of_two_hubs_exactly_one_yields(hubs: list[Hello]) -> None:
    one, other = hubs
    assert choose_hub((one, other)) == choose_hub((other, one))


faults = st.lists(
    st.one_of(
        st.tuples(st.just("cut"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("kill"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("start"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("sleep"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("isolate"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("leave"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("stop"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("write"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("wait"), st.sampled_from(("0.1", "0.7", "2.5", "6")), st.just("")),
        st.tuples(st.just("heal"), st.just(""), st.just("")),
    ),
    max_size=14,
)


def suffer(world: World, fault: tuple[str, str, str]) -> None:
    kind, name, other = fault
    if kind == "wait":
        world.run(float(name))
    elif kind == "heal":
        world.heal()
    elif name in world.nodes:
        suffer_at(world, kind, name, other=other)


def suffer_at(world: World, kind: str, name: str, *, other: str) -> None:
    alive = world.nodes[name].alive
    match kind:
        case "cut" if other in world.nodes and name != other:
            world.cut_link(name, other)
        case "isolate":
            for each in world.nodes.keys() - {name}:
                world.cut_link(name, each)
        case "kill" if alive:
            world.kill(name)
        case "start" if not alive:
            world.start(name)
        case "sleep" if alive:
            world.sleep(name, 5.0)
        case "leave" if alive:
            world.leave(name)
            world.run(1.0)
            world.kill(name)
        case "stop":
            # It is about to leave, and becomes hub no more, which `World` holds it to.
            world.nodes[name].situation.begin_leaving()
        case "write":
            world.write(name)
        case _:
            return


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5), faults)
def test_a_healed_cluster_agrees_on_one_hub(size: int, happened: list[tuple[str, str, str]]) -> None:
    world = World(NAMES[:size])
    world.run(2.0)
    for fault in happened:
        suffer(world, fault)
    world.heal()
    for node in world.nodes.values():
        if node.alive and not node.situation.stands:
            world.kill(node.name)
    if not any(node.alive for node in world.nodes.values()):
        world.start("a")
    world.run(BOUND)
    assert world.is_agreed(), {name: (node.situation.role, node.situation.why) for name, node in world.nodes.items()}
    # And it stays so.
    hub = world.list_hubs()[0].name
    world.run(5.0)
    assert world.is_agreed()
    assert world.list_hubs()[0].name == hub


@settings(max_examples=100, deadline=None)
@given(st.integers(2, 5), st.integers(0, 20))
def test_losing_the_hub_loses_nothing_that_was_applied(size: int, written: int) -> None:
    world = World(NAMES[:size])
    world.run(BOUND)
    hub = world.list_hubs()[0]
    for _ in range(written):
        world.write(hub.name)
    world.run(0.5)
    applied = hub.position.applied
    world.kill(hub.name)
    world.run(2.0)
    assert world.is_agreed()
    new = world.list_hubs()[0]
    assert new.log is not None
    assert new.log.base == applied


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 5))
def test_a_hub_that_one_member_still_reaches_is_not_replaced(size: int) -> None:
    world = World(NAMES[:size])
    world.run(BOUND)
    hub = world.list_hubs()[0]
    others = [name for name in world.nodes if name != hub.name]
    if len(others) < 2:
        return
    world.cut_link(hub.name, others[0])
    world.run(10.0)
    assert [node.name for node in world.list_hubs()] == [hub.name]
    assert others[1] in world.nodes[others[0]].situation.why


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 5), st.integers(1, 4))
def test_a_node_that_cannot_serve_is_passed_over(size: int, broken: int) -> None:
    world = World(NAMES[:size])
    world.unfit = set(NAMES[: min(broken, size - 1)])
    world.run(2.0 + 4.0 * len(world.unfit))
    assert world.is_agreed()
    assert world.list_hubs()[0].name not in world.unfit
