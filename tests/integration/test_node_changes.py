"""A node that is started again with other flags: what it was before is not taken for what it is now."""

from pathlib import Path

from support.node import NodeProcess, wait_for

MODEL = "exo/scripted"


def start(node: NodeProcess, *arguments: str) -> NodeProcess:
    """Start a node anew with these flags, its log empty."""
    node.arguments = arguments
    (node.data / "stderr.txt").unlink(missing_ok=True)
    return node.start()


def test_models_of_a_node_that_runs_none_any_more_are_removed_with_that_reason(tmp_path: Path) -> None:
    node = start(NodeProcess(tmp_path / "node"), "--name", "desk")
    try:
        instance = node.place()
        assert node.stop() == 0
        start(node, "--name", "desk", "--no-worker")
        wait_for(lambda: not node.state()["instances"], seconds=10, what="instance that is removed", node=node)
        (removed,) = node.state()["removed_instances"]
        assert (removed["id"], removed["code"]) == (instance, "unplaceable")
        assert removed["reason"] == "node desk runs no models any more (--no-worker)"
        assert "on the way back" not in node.log()
    finally:
        node.stop()


def test_state_of_a_cluster_of_another_name_is_neither_taken_over_nor_lost(tmp_path: Path) -> None:
    node = start(NodeProcess(tmp_path / "node"), "--namespace", "home")
    try:
        instance = node.place()
        session = node.state()["session"]
        assert node.stop() == 0
        start(node, "--namespace", "work")
        state = node.state()
        assert (state["instances"], state["lineage"]) == ({}, [])
        assert state["session"] != session
        assert node.stop() == 0
        start(node, "--namespace", "home")
        node.await_ready(MODEL)
        state = node.state()
        assert (state["session"], list(state["instances"])) == (session, [instance])
    finally:
        node.stop()
