"""`python -m exo.runners` through its real pipe, with MLX computing inside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from exo.runners.engines.mlx.engine import MlxEngine
from exo.streams.chunks import Done, Failed, Prefill, Text
from exo.streams.codes import Code
from exo.streams.ids import TaskId
from exo.streams.instances import Failed as FailedStatus
from exo.streams.instances import Loading, Ready
from exo.streams.pipe import Cancel, Generate
from exo.streams.requests import GenerationRequest
from support.engines import ask, load_engine, make_start, run, text_of
from support.runner_pipe import RunnerProcess
from support.tiny_models import make_tiny_model

PROMPT = "The quick brown fox"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("fluent"), fluent=True)


@pytest.fixture(scope="module")
def runner(folder: Path) -> Iterator[RunnerProcess]:
    with RunnerProcess() as runner:
        runner.send(make_start(folder))
        runner.frames.wait_for_status(Ready)
        yield runner


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[MlxEngine]:
    """The same model in this process."""
    engine = load_engine(folder)
    yield engine
    engine.close()


def send(runner: RunnerProcess, task: str, request: GenerationRequest) -> None:
    runner.send(Generate(task=TaskId(task), attempt=1, request=request))


def said(runner: RunnerProcess, task: str) -> tuple[str, Done]:
    chunks = runner.frames.wait_for_end(task)
    assert isinstance(chunks[-1], Done)
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text)), chunks[-1]


def test_answers_are_those_of_the_engine(runner: RunnerProcess, local: MlxEngine) -> None:
    requests = [ask(f"{PROMPT} {number}", max_tokens=20) for number in range(6)]
    for number, request in enumerate(requests):
        send(runner, f"a{number}", request)
    expected = [text_of(steps) for steps in run(local, *requests)]
    answers = [said(runner, f"a{number}") for number in range(6)]
    assert [text for text, _ in answers] == expected
    assert {(done.reason, done.usage.completion) for _, done in answers} == {("length", 20)}
    assert runner.frames.statuses.count(Loading(4, 4)) == 1


def test_a_stop_string_over_token_borders_ends_the_answer(runner: RunnerProcess, local: MlxEngine) -> None:
    (steps,) = run(local, ask(PROMPT, max_tokens=40))
    whole = text_of(steps)
    stop = whole[len(whole) // 2 : len(whole) // 2 + 9]
    send(runner, "stopped", ask(PROMPT, max_tokens=40, stop=(stop, "never there")))
    text, done = said(runner, "stopped")
    assert text == whole[: whole.index(stop)]
    assert (done.reason, done.stop_sequence) == ("stop", stop)
    assert done.usage.completion < 40


def test_a_cancelled_answer_ends_and_frees_its_slot(runner: RunnerProcess) -> None:
    send(runner, "long", ask(PROMPT, max_tokens=900))
    runner.frames.wait_for(
        lambda: any(isinstance(chunk, Text) for chunk in runner.frames.chunks[TaskId("long")]), "the first text"
    )
    runner.send(Cancel(task=TaskId("long")))
    end = runner.frames.wait_for_end("long")[-1]
    assert isinstance(end, Failed)
    assert end.code == Code.CANCELLED
    send(runner, "after", ask(PROMPT, max_tokens=1))
    assert said(runner, "after")[1].usage.completion == 1


def test_prefill_reports_how_far_it_is(runner: RunnerProcess) -> None:
    send(runner, "prompted", ask("rain in Spain " * 60, max_tokens=1))
    _, done = said(runner, "prompted")
    progress = [chunk for chunk in runner.frames.chunks[TaskId("prompted")] if isinstance(chunk, Prefill)]
    assert len(progress) > 1
    assert progress[-1].processed == progress[-1].total == done.usage.prompt


def test_a_folder_without_a_model_is_reported_with_its_code(tmp_path: Path) -> None:
    with RunnerProcess() as runner:
        runner.send(make_start(tmp_path))
        status = runner.frames.wait_for_status(FailedStatus)
        assert isinstance(status, FailedStatus)
        assert status.code == Code.MODEL_FILES_MISSING
        assert "config.json" in status.message
        assert runner.wait() == 1
