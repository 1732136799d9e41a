"""What `exo ps` and `exo status` make of State."""

from typing import Any

import msgspec
import pytest

from exo.ops.cluster_view import (
    ClusterView,
    can_serve_without,
    list_instances,
    list_nodes,
    list_removed,
    name_instances,
    summarize,
)
from exo.streams.ids import InstanceId, NodeId

NOW = 1_000.0


def make_view(**changes: Any) -> ClusterView:
    card = {"model_id": "org/Small"}
    shard = {"runner": "r1", "node": "n1", "rank": 0, "world_size": 1, "start_layer": 0, "end_layer": 2, "n_layers": 2}
    facts = {"name": "desk", "version": "1", "memory_total": 10}
    content: dict[str, Any] = {
        "session": "s",
        "epoch": 2,
        "master": "n1",
        "applied": 7,
        "nodes": {
            "n1": {"id": "n1", "boot": "b", "facts": facts, "online": True, "since": 940_000},
            "n2": {
                "id": "n2",
                "boot": "b",
                "facts": {**facts, "name": "attic"},
                "online": False,
                "since": 0,
                "cause": "timed_out",
            },
        },
        "instances": {
            "i1": {
                "id": "i1",
                "model": card,
                "sharding": "Pipeline",
                "transport": "MlxRing",
                "shards": [shard],
                "context_length": 10,
                "placed_at": 880_000,
            }
        },
        "runners": {"r1": {"id": "r1", "instance": "i1", "node": "n1", "rank": 0, "status": {"type": "ready"}}},
        "tasks": {},
        "removed_instances": [
            {"id": "i0", "model_id": "org/Old", "code": "runner_failed", "reason": "it died", "removed_at": 970_000}
        ],
        "telemetry": {
            "n1": {
                "memory": {"gauge": {"type": "memory", "total": 25_000_000_000, "available": 5_000_000_000},
                           "interval": 2, "age": 1, "taken_at": 0},
                "throughput": {"gauge": {"type": "throughput", "generated_tokens_per_second": 12.34,
                                         "prompt_tokens_per_second": 0, "active_tasks": 1}, "interval": 2, "age": 1},
                "processor": {"gauge": {"type": "processor", "utilization": 0.5, "cores": 4}, "interval": 2, "age": 90},
            }
        },
        "a_key_of_a_newer_node": {},
        **changes,
    }  # fmt: skip
    return msgspec.convert(content, ClusterView)


TASK = {
    "id": "t", "command": "c", "model": "org/Small", "instance": "i1", "node": "n1", "boot": "b", "gateway": "n1",
    "gateway_boot": "b",
}  # fmt: skip


def test_an_instance_is_a_row() -> None:
    rows = list_instances(make_view(tasks={"t": TASK}), now=NOW)
    assert rows == [["org/Small", "ready", "1", "2m00s", "desk", "i1"]]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ({"type": "loading", "layers_loaded": 3, "total_layers": 30}, "loading 3/30"),
        ({"type": "warming_up"}, "warming up"),
        ({"type": "failed", "code": "runner_failed", "message": "out of memory", "attempt": 2},
         "failed (attempt 2): out of memory"),
    ],
)  # fmt: skip
def test_the_status_is_that_of_the_slowest_rank(status: dict[str, Any], text: str) -> None:
    runner = {"id": "r1", "instance": "i1", "node": "n1", "rank": 0, "status": status}
    assert list_instances(make_view(runners={"r1": runner}), now=NOW)[0][1] == text


def test_an_instance_on_a_lost_node_is_not_ready() -> None:
    runner = {"id": "r1", "instance": "i1", "node": "n2", "rank": 0, "status": {"type": "ready"}}
    assert list_instances(make_view(runners={"r1": runner}), now=NOW)[0][1] == "node attic is offline"


def test_an_old_gauge_is_not_shown_as_new() -> None:
    desk, attic = list_nodes(make_view(), now=NOW)
    assert desk == ["desk", "online", "master", "1", "5.0 GB of 25.0 GB", "-", "12.3", "1m00s", "1", "n1"]
    assert attic[:7] == ["attic", "offline (timed out)", "-", "0", "-", "-", "-"]


def test_offices_and_draining_are_shown() -> None:
    nodes = msgspec.to_builtins(make_view().nodes)
    nodes["n1"] |= {"draining": True, "facts": {**nodes["n1"]["facts"], "worker": False}}
    desk, attic = list_nodes(make_view(nodes=nodes), now=NOW, hub="n1")
    assert desk[1:3] == ["drained", "hub, master, no worker"]
    # Who is gone holds no office, whatever the last record says.
    assert list_nodes(make_view(master="n2"), now=NOW, hub="n2")[1][2] == attic[2] == "-"


def test_a_node_is_drained_once_nothing_runs_there() -> None:
    nodes = msgspec.to_builtins(make_view().nodes)
    nodes["n1"] |= {"draining": True}
    busy = make_view(nodes=nodes, tasks={"t": TASK})
    assert list_nodes(busy, now=NOW)[0][1] == "draining"
    assert list_nodes(make_view(nodes=nodes), now=NOW)[0][1] == "drained"


def test_only_who_is_there_and_runs_models_can_serve_instead() -> None:
    nodes = msgspec.to_builtins(make_view().nodes)
    assert not can_serve_without(make_view(), NodeId("n1"))
    nodes["n2"] |= {"online": True}
    assert can_serve_without(make_view(nodes=nodes), NodeId("n1"))
    nodes["n2"]["facts"] |= {"worker": False}
    assert not can_serve_without(make_view(nodes=nodes), NodeId("n1"))


def test_the_summary_counts() -> None:
    assert summarize(make_view()) == [
        "1 of 2 nodes online, 1 instance, 0 requests in flight, 12.3 tokens/s",
        "session s, epoch 2, 7 events",
    ]


def test_a_removed_instance_keeps_its_reason() -> None:
    assert list_removed(make_view(), now=NOW) == [["org/Old", "30s", "runner_failed", "it died"]]


@pytest.mark.parametrize("name", ["i1", "org/Small", "org/small", "small"])
def test_an_instance_is_found_by_any_of_its_names(name: str) -> None:
    assert [instance.id for instance in name_instances(make_view(), name)] == ["i1"]
    assert list(name_instances(make_view(), "mall")) == []


def test_an_instance_is_found_by_the_beginning_of_its_id_only_if_it_is_the_one() -> None:
    one = msgspec.to_builtins(make_view().instances[InstanceId("i1")])
    view = make_view(instances={key: {**one, "id": key} for key in ("abc1", "abd2")})
    assert [instance.id for instance in name_instances(view, "abc")] == ["abc1"]
    assert list(name_instances(view, "ab")) == []
    assert list(name_instances(view, "")) == []


@pytest.mark.parametrize(("age", "shown"), [(6, "5.0 GB of 25.0 GB"), (75, "5.0 GB of 25.0 GB (1m15s ago)")])
def test_memory_that_is_not_measured_any_more_is_shown_with_its_age(age: float, shown: str) -> None:
    memory = {"type": "memory", "total": 25_000_000_000, "available": 5_000_000_000}
    view = make_view(telemetry={"n1": {"memory": {"gauge": memory, "interval": 2, "age": age}}})
    assert shown in list_nodes(view, now=NOW)[0]


def test_a_gauge_of_a_newer_node_disturbs_nothing() -> None:
    reading = {"gauge": {"type": "antimatter", "grams": "few"}, "interval": 2, "age": 1}
    view = make_view(telemetry={"n1": {"antimatter": reading, "memory": reading}})
    assert [row[4] for row in list_nodes(view, now=NOW)] == ["-", "-"]
    assert msgspec.to_builtins(view)["telemetry"]["n1"]["antimatter"]["gauge"] == reading["gauge"]


@pytest.mark.parametrize(("age", "shown"), [(4, "online"), (12, "online (silent 12s)")])
def test_a_node_of_which_nothing_has_come_lately_is_silent(age: float, shown: str) -> None:
    memory = {"gauge": {"type": "memory", "total": 1, "available": 1}, "interval": 2, "age": age}
    disk = {"gauge": {"type": "antimatter"}, "interval": 30, "age": age + 8}
    view = make_view(telemetry={"n1": {"memory": memory, "disk": disk}})
    assert [row[1] for row in list_nodes(view, now=NOW)] == [shown, "offline (timed out)"]
