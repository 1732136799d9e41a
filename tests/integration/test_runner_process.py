"""`python -m exo.runners` through its real pipe, with the scripted engine."""

import signal
from collections.abc import Callable, Iterator

import pytest

from exo.runners.inbox import BAD_FRAME
from exo.runners.lifecycle import FAILED, STUCK
from exo.runners.outbox import NODE_GONE
from exo.streams.chunks import Admitted, Done, Failed, Rejected, Text
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.instances import Failed as FailedStatus
from exo.streams.instances import Loading, Ready, Starting, Stopping, WarmingUp
from exo.streams.pipe import Cancel, Counted, CountTokens, Stop
from support.requests import ask, generate, start_scripted
from support.runner_pipe import RunnerProcess

Begin = Callable[..., RunnerProcess]
LONG = "[[say:" + "word " * 500 + "]]"


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Start a runner of `exo/scripted`; keywords are its options, the rest its script."""
    runners: list[RunnerProcess] = []

    def begin(*, ready: bool = True, max_batch: int = 16, max_queue: int = 64, **script: float) -> RunnerProcess:
        runner = RunnerProcess()
        runners.append(runner)
        runner.send(start_scripted(max_batch=max_batch, max_queue=max_queue, script=script))
        if ready:
            runner.frames.wait_for_status(Ready)
        return runner

    yield begin
    for runner in runners:
        runner.close()


def _said(runner: RunnerProcess, task: str) -> str:
    return "".join(chunk.text for chunk in runner.frames.wait_for_end(task) if isinstance(chunk, Text))


def test_a_life_from_start_to_stop(begin: Begin) -> None:
    runner = begin()
    runner.send(generate("a", ask("[[say:Hello 世界 😀]]")))
    assert _said(runner, "a") == "Hello 世界 😀"
    runner.send(Stop())
    assert runner.wait() == 0
    assert runner.frames.statuses == [
        Starting(), Loading(0, 2), Loading(1, 2), Loading(2, 2), WarmingUp(), Ready(), Stopping()
    ]  # fmt: skip


def test_many_streams_at_once_have_no_gap(begin: Begin) -> None:
    runner = begin(max_batch=32, max_queue=100)
    tasks = [f"task-{number}" for number in range(100)]
    for task in tasks:
        runner.send(generate(task, ask(f"[[say:this is {task} and nobody else]]")))
    assert [_said(runner, task) for task in tasks] == [f"this is {task} and nobody else" for task in tasks]


def test_prints_of_libraries_do_not_break_frames() -> None:
    noisy = (
        "import os\n"
        "from exo.runners import __main__ as process\n"
        "from exo.runners.engines.fake import ScriptedEngine\n"
        "quiet = ScriptedEngine.step\n"
        "def step(engine):\n"
        "    print('noise from Python', flush=True)\n"
        "    os.write(1, b'noise from C')\n"
        "    return quiet(engine)\n"
        "ScriptedEngine.step = step\n"
        "os._exit(process.main())\n"
    )
    with RunnerProcess("-c", noisy) as runner:
        runner.send(start_scripted())
        runner.frames.wait_for_status(Ready)
        runner.send(generate("a", ask("[[say:one two]]")))
        assert _said(runner, "a") == "one two"
    assert "noise from Python" in runner.stderr
    assert "noise from C" in runner.stderr


def test_requests_during_loading_are_refused(begin: Begin) -> None:
    runner = begin(ready=False, hang_load=1)
    runner.send(generate("a", ask("hi")))
    (refused,) = runner.frames.wait_for_end("a")
    assert isinstance(refused, Rejected)
    assert refused.code == Code.MODEL_LOADING


def test_a_stop_during_loading_is_obeyed(begin: Begin) -> None:
    runner = begin(ready=False, hang_load=1)
    runner.send(Stop(grace=60))
    assert runner.wait() == 0


def test_a_failed_load_says_why(begin: Begin) -> None:
    runner = begin(ready=False, fail_load=1)
    assert runner.wait() == FAILED
    failed = runner.frames.statuses[-1]
    assert isinstance(failed, FailedStatus)
    assert failed.code == Code.RUNNER_FAILED
    assert "fail_load" in failed.message
    assert "Traceback" in runner.stderr


def test_a_wrong_script_says_what_is_known(begin: Begin) -> None:
    runner = begin(ready=False, tokens_per_minute=1)
    assert runner.wait() == FAILED
    failed = runner.frames.statuses[-1]
    assert isinstance(failed, FailedStatus)
    assert "tokens_per_second" in failed.message


def test_a_fault_in_the_warm_up_is_a_failed_start(begin: Begin) -> None:
    runner = begin(ready=False, raise_after_tokens=1)
    assert runner.wait() == FAILED
    assert isinstance(runner.frames.statuses[-1], FailedStatus)


def test_a_crash_is_a_crash(begin: Begin) -> None:
    runner = begin(crash_after_tokens=5)
    runner.send(generate("a", ask(LONG)))
    assert runner.wait() == -signal.SIGKILL
    chunks = runner.frames.chunks[TaskId("a")]
    assert [type(chunk) for chunk in chunks] == [Admitted, *[Text] * 5]


def test_a_broken_engine_ends_every_answer_and_the_process(begin: Begin) -> None:
    runner = begin(max_batch=1, break_after_tokens=5, tokens_per_second=50)
    for task in ("running", "waiting"):
        runner.send(generate(task, ask(LONG)))
    assert runner.wait() == FAILED
    for task in ("running", "waiting"):
        last = runner.frames.wait_for_end(task)[-1]
        assert isinstance(last, Failed)
        assert last.code == Code.RUNNER_FAILED
    assert isinstance(runner.frames.statuses[-1], FailedStatus)


def test_a_hanging_step_still_beats_and_stands_still(begin: Begin) -> None:
    runner = begin(hang_after_tokens=5)
    runner.send(generate("a", ask(LONG)))
    runner.frames.wait_for_chunks("a", 6)
    seen = len(runner.frames.beats)
    runner.frames.wait_for(lambda: len(runner.frames.beats) >= seen + 3, "three beats")
    before, after = runner.frames.beats[-2:]
    assert before.steps == after.steps
    assert (after.active, after.generated_tokens) == (1, 5)
    # Rendering has threads of its own, so even now a request is told that it was admitted.
    runner.send(generate("b", ask("hi")))
    assert isinstance(runner.frames.wait_for_chunks("b")[0], Admitted)
    runner.hang_up()
    assert runner.wait() == NODE_GONE


def test_a_cancel_ends_one_answer(begin: Begin) -> None:
    runner = begin(tokens_per_second=100)
    for task in ("a", "b"):
        runner.send(generate(task, ask(LONG, max_tokens=20)))
    runner.frames.wait_for_chunks("a", 3)
    runner.send(Cancel(task=TaskId("a")))
    last = runner.frames.wait_for_end("a")[-1]
    assert last == Failed(1, last.index, Code.CANCELLED, "the request was cancelled")
    done = runner.frames.wait_for_end("b")[-1]
    assert isinstance(done, Done)
    assert done.usage.completion == 20


def test_the_death_of_the_node_ends_an_idle_runner(begin: Begin) -> None:
    runner = begin()
    runner.hang_up()
    assert runner.wait() == NODE_GONE


def test_what_is_no_frame_ends_the_runner(begin: Begin) -> None:
    runner = begin()
    runner.send_bytes(b"not json")
    assert runner.wait() == BAD_FRAME
    assert "the pipe from the node broke" in runner.stderr


def test_an_interrupt_from_the_terminal_is_ignored(begin: Begin) -> None:
    runner = begin()
    runner.signal(signal.SIGINT)
    runner.send(generate("a", ask("[[say:still here]]")))
    assert _said(runner, "a") == "still here"


def test_sigterm_stops_and_tells_every_request(begin: Begin) -> None:
    runner = begin(max_batch=1, tokens_per_second=50)
    for task in ("running", "waiting"):
        runner.send(generate(task, ask(LONG)))
        runner.frames.wait_for_chunks(task)
    runner.signal(signal.SIGTERM)
    assert runner.wait() == 0
    for task in ("running", "waiting"):
        last = runner.frames.wait_for_end(task)[-1]
        assert isinstance(last, Failed)
        assert last.code == Code.INSTANCE_REMOVED
    assert runner.frames.statuses[-1] == Stopping()


def test_a_graceful_stop_lets_answers_end_and_takes_no_more(begin: Begin) -> None:
    runner = begin(tokens_per_second=50)
    runner.send(generate("a", ask(LONG, max_tokens=25)))
    runner.frames.wait_for_chunks("a", 2)
    runner.send(Stop(grace=60))
    runner.send(generate("late", ask("hi")))
    (refused,) = runner.frames.wait_for_end("late")
    assert isinstance(refused, Rejected)
    assert refused.code == Code.INSTANCE_REMOVED
    done = runner.frames.wait_for_end("a")[-1]
    assert isinstance(done, Done)
    assert done.usage.completion == 25
    assert runner.wait() == 0


def test_sigterm_shortens_a_grace(begin: Begin) -> None:
    runner = begin(tokens_per_second=5)
    runner.send(generate("a", ask(LONG)))
    runner.frames.wait_for_chunks("a", 2)
    runner.send(Stop(grace=60))
    runner.frames.wait_for_status(Stopping)
    runner.signal(signal.SIGTERM)
    assert runner.wait() == 0
    assert isinstance(runner.frames.wait_for_end("a")[-1], Failed)
    assert runner.frames.statuses.count(Stopping()) == 1


def test_a_stop_does_not_wait_for_ever_on_a_hanging_step() -> None:
    impatient = (
        "import os\n"
        "from exo.runners import __main__ as process, lifecycle\n"
        "lifecycle.STOP_LIMIT = 0.2\n"
        "os._exit(process.main())\n"
    )
    with RunnerProcess("-c", impatient) as runner:
        runner.send(start_scripted(script={"hang_after_tokens": 5}))
        runner.frames.wait_for_status(Ready)
        runner.send(generate("a", ask(LONG)))
        runner.frames.wait_for_chunks("a", 6)
        runner.send(Stop())
        assert runner.wait() == STUCK


def test_tokens_cannot_be_counted_before_the_tokenizer_is_there(begin: Begin) -> None:
    runner = begin(ready=False, hang_load=1)
    runner.send(CountTokens(call=1, request=ask("hi")))
    runner.frames.wait_for(lambda: any(isinstance(frame, Counted) for frame in runner.frames.all), "the count")
    (counted,) = (frame for frame in runner.frames.all if isinstance(frame, Counted))
    assert (counted.call, counted.tokens, counted.code) == (1, 0, Code.MODEL_LOADING)


def test_beats_count_the_work(begin: Begin) -> None:
    runner = begin()
    runner.send(generate("a", ask("[[say:one two three]]")))
    prompt_tokens = runner.frames.wait_for_end("a")[0]
    assert isinstance(prompt_tokens, Admitted)
    runner.frames.wait_for(
        lambda: bool(runner.frames.beats) and runner.frames.beats[-1].generated_tokens == 4, "a beat with tokens"
    )
    beat = runner.frames.beats[-1]
    assert (beat.active, beat.queued, beat.prompt_tokens) == (0, 0, prompt_tokens.prompt_tokens)
    assert beat.steps >= 4


def test_whoever_is_not_a_node_is_told_so() -> None:
    with RunnerProcess() as runner:
        runner.send(Stop())
        assert runner.wait() == 2
    assert "started by a node" in runner.stderr
