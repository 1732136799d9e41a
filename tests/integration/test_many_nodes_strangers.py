"""Who is turned away from a cluster, and that both sides can read why: strangers, copies, and noise."""

import os
import shutil
import socket
import ssl
import struct
from pathlib import Path
from typing import Any

from support.hosts import Lan
from support.many_nodes import CLUSTER, Member, Members, running_nodes, starting
from support.node import wait_for
from support.replay import tapping
from support.streams import say

SECRET, ANOTHER = f"exo1-{'a' * 52}", f"exo1-{'b' * 52}"


def refusals(node: Member) -> dict[str, dict[str, Any]]:
    """Give whom a node turned away, or who turned it away, by name."""
    return {refusal["name"]: refusal for refusal in node.report()["refusals"] if refusal["code"] != "connected"}


def test_strangers_are_refused_by_name(tmp_path: Path) -> None:
    with starting(tmp_path) as starter:
        hub = starter.start("--name=hub", env={"EXO_CLUSTER_SECRET": SECRET})
        wrong = starter.launch("--name=wrong", env={"EXO_CLUSTER_SECRET": ANOTHER})
        none = starter.launch("--name=none")
        other = starter.launch("--name=other", "--namespace=elsewhere")
        member = starter.launch("--name=member", env={"EXO_CLUSTER_SECRET": SECRET})
        for node in (wrong, none, other, member):
            node.await_up()
        members = starter.members
        members.wait_online([hub, member])
        expected = {"wrong": "secret_mismatch", "none": "secret_mismatch", "other": "other_cluster"}
        members.wait(lambda: refusals(hub).keys() >= expected.keys(), seconds=15, what="all refusals")
        seen = refusals(hub)
        assert {name: seen[name]["code"] for name in expected} == expected
        assert all(seen[node.name]["node"] == node.id for node in (wrong, none, other) if node.name in seen)
        for node in (wrong, none, other):
            # The one who was refused knows by whom, why, and what to type.
            assert refusals(node)["hub"]["code"] == expected[_name(node)]
            assert node.doctor()["refused"]["remedy"]
            assert node.online() == {node.id}
        assert hub.online() == member.online() == {hub.id, member.id}


def _name(node: Member) -> str:
    return str(node.state()["nodes"][node.id]["facts"]["name"])


def test_another_cluster_on_the_lan_is_shown_and_left_alone(tmp_path: Path) -> None:
    with Lan(2) as lan, starting(tmp_path, hosts=lan.hosts) as starter:
        ours = starter.start("--name=ours")
        theirs = starter.start("--name=theirs", "--namespace=the neighbours")
        for node, other, cluster in ((ours, theirs, "the neighbours"), (theirs, ours, CLUSTER)):
            (seen,) = starter.members.wait(lambda node=node: node.report()["strangers"], seconds=10, what="strangers")
            assert (seen["node"], seen["name"], seen["cluster"]) == (other.id, _name(other), cluster)
            assert node.online() == {node.id}
            assert say_placed(node) == "at home"


def say_placed(node: Member) -> str:
    node.place()
    return say(node, "at home")


def find_refusal(node: Member, code: str) -> dict[str, Any] | None:
    return next((refusal for refusal in node.report()["refusals"] if refusal["code"] == code), None)


def test_a_copy_of_a_running_node_is_refused(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        hub, original = members.nodes
        copy = Member(
            tmp_path / "copy",
            *("--local", "--cluster-port=0", "--name=copy", f"--join=127.0.0.1:{hub.cluster_port()}"),
        )
        shutil.copytree(original.data, copy.data, ignore=shutil.ignore_patterns("lock", "node.json", "nats"))
        try:
            copy.launch()
            refusal = members.wait(lambda: find_refusal(hub, "duplicate_node"), seconds=30, what="the refusal")
            assert (refusal["node"], refusal["name"]) == (original.id, "copy")
            wait_for(lambda: "duplicate_node" in copy.log(), seconds=10, what="the reason in its own log", node=copy)
        finally:
            copy.lose()
        members.settle()
        assert original.running
        hub.place()
        assert say(original, "the only one") == "the only one"


def test_noise_on_the_cluster_port_hurts_nobody(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        hub, other = members.nodes
        hub.place()
        port = hub.cluster_port()
        idle = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(50)]
        for noise in (
            b"GET / HTTP/1.1\r\nHost: exo\r\n\r\n",
            os.urandom(100_000),
            b"\x16\x03\x01\xff\xff" + bytes(500),
        ):
            send_plain(port, noise)
        for noise in (
            struct.pack(">I", 2**31) + b"{",
            struct.pack(">I", 65_537) + bytes(65_537),
            struct.pack(">I", 12) + b'{"type":"no',
            struct.pack(">I", 2) + b"{}",
            os.urandom(50_000),
        ):
            send_tls(port, noise)
        counters = members.wait(
            lambda: found if (found := hub.report()["counters"]).get("garbage") else None,
            seconds=10,
            what="the noise in the report",
        )
        assert counters["oversized"] >= 1
        assert members.settle() is hub
        assert say(other, "undisturbed") == "undisturbed"
        assert hub.processes()[0].num_fds() < 400
        for connection in idle:
            connection.close()
        assert "Traceback" not in hub.log()


def send_plain(port: int, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        _push(connection, data)


def send_tls(port: int, data: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=5) as connection,
        context.wrap_socket(connection) as encrypted,
    ):
        _push(encrypted, data)


def _push(connection: socket.socket, data: bytes) -> None:
    """Send it all and read until we are hung up on, which must not take for ever."""
    try:
        connection.sendall(data)
        connection.settimeout(15)
        while connection.recv(65536):
            pass
    except (ConnectionError, ssl.SSLError):
        return


async def test_messages_of_a_newer_version_are_skipped_and_counted(tmp_path: Path) -> None:
    with running_nodes(tmp_path, 2) as members:
        hub, other = members.nodes
        async with tapping(hub, role="hub") as bus:
            event = b'{"id":"from-the-future","at":1,"actor":"x","boot":"y","event":{"type":"moon_landed"}}'
            await bus.append(f"exo.events.node.{other.id}.moon-landed", event)
            await bus.append("exo.commands.moon.land", b'{"type":"LandOnMoon","command_id":"moon"}')
        state = settle_with(members, unknown_events=1)
        assert state["nodes"].keys() == {hub.id, other.id}
        hub.place()
        assert say(other, "still on earth") == "still on earth"


def settle_with(members: Members, **expected: Any) -> dict[str, Any]:
    state: dict[str, Any] = members.wait(
        lambda: found if (found := members.find_agreement()) and found.items() >= expected.items() else None,
        seconds=10,
        what=f"State with {expected}",
    )
    return state
