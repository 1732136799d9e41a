"""Every command of `exo` in a process of its own, against a real node with real runners."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.gguf_files import random_weights, write_gguf
from support.node import ALONE, NodeProcess, wait_for

EXO = str(Path(sys.executable).with_name("exo"))
MODEL = "exo/scripted"
SLOW = {"EXO_SCRIPTED": "tokens_per_second=30"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("cli") / "data", "--model", "scripted", "-v", env=SLOW).start()
    try:
        node.await_ready(MODEL)
        yield node
    finally:
        node.stop()


def exo(
    *arguments: str, data: Path, piped: str = "", env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, **ALONE, "EXO_DATA_DIR": str(data), **(env or {})}
    return subprocess.run(
        [EXO, *arguments], input=piped, capture_output=True, text=True, timeout=90, check=False, env=environment
    )


def read(done: "subprocess.CompletedProcess[str]") -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_table(text: str) -> list[dict[str, str]]:
    header, *rows = text.splitlines()
    return [dict(zip(header.split("\t"), row.split("\t"), strict=True)) for row in rows]


def test_ps_and_status_show_what_runs(node: NodeProcess) -> None:
    (row,) = [row for row in read_table(read(exo("ps", data=node.data))) if row["model"] == MODEL]
    assert row["status"] == "ready"
    assert row["instance"] in node.instances_of(MODEL)
    done = exo("status", data=node.data)
    assert "1 of 1 node online" in done.stderr
    assert "master" in read(done)
    status = json.loads(read(exo("status", "--json", data=node.data)))
    assert list(status["instances"]) == list(node.state()["instances"])
    assert status["telemetry"].keys() == status["nodes"].keys()


def test_run_prints_the_answer_alone(node: NodeProcess) -> None:
    done = exo("run", "scripted", "[[think:so]][[say:Grüße, Welt!]]", data=node.data)
    assert (read(done), done.stderr) == ("Grüße, Welt!\n", "")
    assert read(exo("run", "scripted", data=node.data, piped="[[say:from the pipe]]")) == "from the pipe\n"
    assert read(exo("run", MODEL, "[[say:one two three]]", "--max-tokens", "1", data=node.data)) == "one\n"


def test_run_by_address_needs_no_data_directory(node: NodeProcess, tmp_path: Path) -> None:
    assert read(exo("run", "scripted", "[[say:hi]]", "--url", node.url, data=tmp_path)) == "hi\n"
    assert read(exo("run", "scripted", "[[say:hi]]", data=tmp_path, env={"EXO_URL": node.url})) == "hi\n"


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (("run", "scripte", "hi"), 1, ["model_not_found", MODEL]),
        (("run", "scripted", "hi", "--max-tokens", "0"), 2, ["--max-tokens"]),
        (("place", "nothing"), 1, ["model_not_found"]),
        (("place", "SmolLM2-135M-Instruct"), 1, ["model_files_missing"]),
        (("stop", "starter"), 1, ["no instance of starter", "exo ps"]),
        (("models", "add", "org/unknown"), 1, ["not_built", "starter"]),
        (("models", "remove", MODEL), 1, ["model_not_found"]),
    ],
)
def test_a_refusal_is_one_line_with_its_code(
    node: NodeProcess, arguments: tuple[str, ...], code: int, parts: list[str]
) -> None:
    done = exo(*arguments, data=node.data)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert [part for part in parts if part not in done.stderr] == []


def test_the_second_up_names_the_process_that_holds_the_lock(node: NodeProcess) -> None:
    done = exo("up", "--port", "0", data=node.data)
    assert done.returncode == 1
    assert f"is in use by process {node.pid} since" in done.stderr
    assert "exo down" in done.stderr


def test_chat_remembers_what_was_said(node: NodeProcess) -> None:
    # Each answer is the one that the turn's directive orders; what counts is that turns follow each other.
    talk = "[[say:first]]\n\n[[say:second]]\n/clear\n[[say:third]]\n/exit\n[[say:never]]\n"
    assert read(exo("chat", "scripted", data=node.data, piped=talk)) == "first\nsecond\nthird\n"


def test_place_waits_and_stop_ends_it(node: NodeProcess) -> None:
    placed = exo("place", "scripted", "--another", "--wait", data=node.data)
    instance = read(placed).strip()
    assert instance in node.instances_of(MODEL)
    assert node.serves(MODEL)
    again = read(exo("place", "scripted", data=node.data)).strip()
    assert again in node.instances_of(MODEL)
    assert len(node.instances_of(MODEL)) == 2
    assert read(exo("stop", instance, data=node.data)) == f"{instance}\n"
    assert list(node.instances_of(MODEL)) != []
    assert instance not in node.instances_of(MODEL)


def test_models_are_listed(node: NodeProcess) -> None:
    rows = {row["model"]: row for row in read_table(read(exo("models", "list", data=node.data)))}
    assert rows[MODEL]["status"] == "running"
    assert json.loads(read(exo("models", "list", "--downloaded", "--json", data=node.data))) == []


def test_events_are_json_lines_and_can_be_followed(node: NodeProcess) -> None:
    lines = read(exo("events", "--limit", "5", data=node.data)).splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["sequence"] for event in events] == [1, 2, 3, 4, 5]
    assert {event["event"]["type"] for event in events} >= {"node_joined", "epoch_started"}
    after = events[-1]["index"]
    command = [EXO, "events", "--follow", "--after", after, "--data-dir", str(node.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["sequence"] == 6
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 130


def test_logs_show_the_file_with_dates(node: NodeProcess) -> None:
    lines = read(exo("logs", "-n", "1000", data=node.data)).splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT", line) for line in lines if "[info" in line)
    text = "\n".join(lines)
    for part in ("Starting EXO", f"pid {node.pid}", "Discovery namespace: ", "[debug"):
        assert part in text
    assert len(read(exo("logs", "-n", "2", data=node.data)).splitlines()) == 2


def test_nats_shows_the_broker(node: NodeProcess, tmp_path: Path) -> None:
    facts = {row["what"]: row["value"] for row in read_table(read(exo("nats", "info", data=node.data)))}
    assert facts["process"] == str(node.broker_pid())
    streams = {row["stream"]: row for row in read_table(read(exo("nats", "streams", data=node.data)))}
    assert int(streams["EXO_EVENTS"]["messages"]) > 3
    context = read(exo("nats", "context", data=node.data, env={"XDG_CONFIG_HOME": str(tmp_path)})).strip()
    written: dict[str, Any] = json.loads(Path(context).read_text())
    assert Path(context) == tmp_path / "nats" / "context" / "exo.json"
    assert written["url"] == facts["address"]
    assert Path(written["nkey"]).stat().st_mode & 0o077 == 0


def test_nats_sub_sees_an_answer_pass(node: NodeProcess) -> None:
    command = [EXO, "nats", "sub", "exo.tokens.>", "--count", "3", "--data-dir", str(node.data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as listening:
        assert listening.stderr is not None
        assert listening.stderr.readline().startswith("listening to exo.tokens.>")
        read(exo("run", "scripted", "[[say:over the wire]]", data=node.data))
        out, _ = listening.communicate(timeout=20)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [json.loads(payload)[0] for _, payload in rows] == ["admitted", "text", "text"]
    assert all(subject.startswith("exo.tokens.") for subject, _ in rows)


def test_doctor_finds_the_node_healthy(node: NodeProcess) -> None:
    findings = json.loads(read(exo("doctor", "--json", data=node.data)))
    by_subject = {finding["subject"]: finding for finding in findings}
    assert by_subject["node"] == {
        "subject": "node",
        "severity": "ok",
        "message": f"process {node.pid} serves {node.url}",
        "remedy": "",
    }
    assert by_subject["message broker"]["severity"] == "ok"


def test_ctrl_c_cancels_the_answer(node: NodeProcess) -> None:
    words = " ".join(f"word{number}" for number in range(400))
    command = [EXO, "run", "scripted", f"[[say:{words}]]", "--data-dir", str(node.data)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.read(4) == "word"
        assert len(node.state()["tasks"]) == 1
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
    wait_for(lambda: not node.state()["tasks"], seconds=10, what="the end of the request", node=node)


def test_a_terminal_sees_thinking_and_colour(node: NodeProcess) -> None:
    screen = look([EXO, "run", "scripted", "[[think:let me see]][[say:done]]", "--data-dir", str(node.data)])
    plain = re.sub(r"\x1b\[\d*m", "", screen)
    assert "\x1b[2mlet" in screen
    assert plain.split() == ["let", "me", "see", "done"]
    table = look([EXO, "ps", "--data-dir", str(node.data)])
    assert "\x1b[1mMODEL" in table
    assert "\t" not in table


def look(command: list[str]) -> str:
    """Run a command on a terminal of its own; gives all that it shows."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(
        command, stdin=follower, stdout=follower, stderr=subprocess.DEVNULL, env=environment
    ) as shown:
        os.close(follower)
        seen, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline:
            if not select.select([leader], [], [], 1)[0]:
                continue
            try:
                block = os.read(leader, 65536)
            except OSError:
                break
            if not block:
                break
            seen += block
        assert shown.wait(10) == 0, seen
    os.close(leader)
    return seen.decode()


@pytest.mark.model
def test_a_file_becomes_a_model_that_answers_and_goes_again(node: NodeProcess, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "tiny.gguf", random_weights())
    imported = exo("models", "import", str(file), "--name", "me/tiny", data=node.data)
    assert read(imported) == "me/tiny\n"
    assert "converting me/tiny\n" in imported.stderr
    rows = {row["model"]: row for row in read_table(read(exo("models", "list", data=node.data)))}
    assert (rows["me/tiny"]["status"], rows["me/tiny"]["source"]) == ("downloaded", "gguf:tiny.gguf")
    # Not running yet: the command starts it and says so.
    answered = exo("run", "me/tiny", "hello", "--max-tokens", "4", data=node.data)
    assert read(answered) is not None
    assert "me/tiny" in answered.stderr
    in_use = exo("models", "remove", "me/tiny", data=node.data)
    assert (in_use.returncode, "exo stop me/tiny" in in_use.stderr) == (1, True)
    read(exo("stop", "tiny", data=node.data))
    assert read(exo("models", "remove", "me/tiny", data=node.data)) == "me/tiny\n"


def test_down_stops_a_daemon_that_up_detached(tmp_path: Path) -> None:
    data = tmp_path / "data"
    up = exo("up", "--legacy-daemon", "--port", "0", "--model", "scripted", data=data)
    assert "Model: exo/scripted" in read(up)
    assert "\n  curl http://127.0.0.1:" in up.stdout
    described = json.loads((data / "node.json").read_text())
    down = exo("down", data=data)
    assert (read(down), down.stderr) == (
        f"process {described['pid']} has stopped\n",
        f"stopping process {described['pid']}\n",
    )
    assert not (data / "node.json").exists()
    assert exo("ps", data=data).returncode == 3


def test_a_node_that_cannot_start_says_why_in_one_line(node: NodeProcess, tmp_path: Path) -> None:
    port = node.url.rpartition(":")[2]
    taken = exo("up", "-q", "--port", port, data=tmp_path / "a")
    assert (taken.returncode, taken.stdout) == (1, "")
    wanted = rf"error: cannot listen on 127\.0\.0\.1:{port}: .* in use by .+ \(process \d+\); .*--port\n"
    assert re.fullmatch(wanted, taken.stderr)
    missing = exo("up", "-q", "--port", "0", data=tmp_path / "b", env={"EXO_NATS_SERVER": "/nowhere/nats-server"})
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: no usable nats-server found")
    assert len(missing.stderr.splitlines()) == 1
