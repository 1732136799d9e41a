"""The MLX engine against mlx-lm called directly, on random models of six architectures."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from exo.runners.engines.engine import EndStep, FaultStep, RequestRefusedError, Step, TokenStep
from exo.runners.engines.mlx.engine import MlxEngine
from exo.streams.models import SamplingDefaults
from exo.streams.requests import GenerationRequest, Sampling
from support.engines import GREEDY, admit, ask, chat, collect, end_of, load_engine, prefill_of, run, text_of, tokens_of
from support.tiny_models import ARCHITECTURES, CONTEXT, VOCABULARY

TinyModel = Callable[..., Path]
PROMPTS = ("The quick brown", "def add(left", "Où est la bibliothèque? " * 8, "1")
END_TOKEN = 2


def answer_directly(folder: Path, prompt: str, max_tokens: int) -> list[int]:
    """What mlx-lm itself generates greedily, up to the token that ends the answer."""
    import mlx.core as mx
    from mlx_lm import load, stream_generate

    model, tokenizer = load(str(folder))[:2]
    model.set_dtype(mx.float32)
    tokens = [r.token for r in stream_generate(model, tokenizer, tokenizer.encode(prompt), max_tokens=max_tokens)]
    ends = [place for place, token in enumerate(tokens) if token in tokenizer.eos_token_ids]
    return tokens[: ends[0]] if ends else tokens


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tokens_are_those_of_mlx_lm_alone_and_in_a_batch(architecture: str, tiny_model: TinyModel) -> None:
    folder = tiny_model(architecture)
    expected = [answer_directly(folder, prompt, 16) for prompt in PROMPTS]
    engine = load_engine(folder, prefill_step=32)
    alone = [tokens_of(run(engine, ask(prompt, max_tokens=16))[0]) for prompt in PROMPTS]
    together = [tokens_of(steps) for steps in run(engine, *[ask(prompt, max_tokens=16) for prompt in PROMPTS])]
    engine.close()
    assert alone == expected
    assert together == expected


def test_prompts_are_worked_off_in_small_steps_beside_running_answers(engine: MlxEngine) -> None:
    first = admit(engine, ask("The quick", max_tokens=200))
    while not any(isinstance(step, TokenStep) for step in engine.step()):
        pass
    long = admit(engine, ask("rain in Spain " * 40, max_tokens=2))
    length = len(engine.render(ask("rain in Spain " * 40)).tokens)
    steps = {first: list[Step](), long: list[Step]()}
    while not any(isinstance(step, EndStep) for step in steps[long]):
        for step in engine.step():
            steps[step.task].append(step)
    engine.drop(first)
    progress = prefill_of(steps[long])
    assert progress[-1] == length
    assert np.diff([0, *progress]).max() <= 64
    assert len(tokens_of(steps[first])) >= length // 64


def test_a_dropped_prompt_leaves_no_trace_on_its_neighbour(engine: MlxEngine) -> None:
    (alone,) = run(engine, ask(PROMPTS[0]))
    kept, dropped = admit(engine, ask(PROMPTS[0])), admit(engine, ask("rain in Spain " * 40))
    engine.step()
    engine.drop(dropped)
    assert engine.active == 1
    (steps,) = collect(engine, [kept])
    assert tokens_of(steps) == tokens_of(alone)


def draw(engine: MlxEngine, *requests: GenerationRequest) -> list[list[int]]:
    return [tokens_of(steps) for steps in run(engine, *requests)]


def test_a_seed_repeats_whatever_runs_beside_it(engine: MlxEngine) -> None:
    seeded = ask(PROMPTS[0], sampling=Sampling(temperature=1, seed=7))
    other = ask(PROMPTS[0], sampling=Sampling(temperature=1, seed=8))
    free = ask(PROMPTS[1], sampling=Sampling(temperature=1))
    (first,), (second,) = draw(engine, seeded), draw(engine, seeded)
    beside = draw(engine, free, seeded, other, free)
    assert first == second == beside[1]
    assert beside[2] != first
    assert len({tuple(tokens) for tokens in draw(engine, free, free, free)}) == 3


def test_top_k_one_and_tiny_top_p_are_greedy(engine: MlxEngine) -> None:
    (greedy,) = draw(engine, ask(PROMPTS[0]))
    narrow = [Sampling(temperature=5, top_k=1), Sampling(temperature=5, top_p=0.0), Sampling(temperature=5, min_p=1.0)]
    assert draw(engine, *[ask(PROMPTS[0], sampling=sampling) for sampling in narrow]) == [greedy] * 3
    (wide,) = draw(engine, ask(PROMPTS[0], sampling=Sampling(temperature=5, top_k=10**6, seed=1)))
    assert wide != greedy


def test_a_temperature_next_to_nothing_is_greedy(engine: MlxEngine) -> None:
    (greedy,) = draw(engine, ask(PROMPTS[0]))
    cold = [Sampling(temperature=temperature, seed=1) for temperature in (1e-3, 1e-9, 1e-300)]
    assert draw(engine, *[ask(PROMPTS[0], sampling=sampling) for sampling in cold]) == [greedy] * 3


def test_what_the_request_leaves_open_the_card_decides(tiny_model: TinyModel) -> None:
    engine = load_engine(tiny_model(), sampling=SamplingDefaults(temperature=0.0))
    silent, loud = ask(PROMPTS[0], sampling=Sampling()), ask(PROMPTS[0], sampling=Sampling(temperature=3, seed=1))
    greedy, decided, chosen = draw(engine, ask(PROMPTS[0]), silent, loud)
    engine.close()
    assert decided == greedy
    assert chosen != greedy


def test_a_bias_forces_and_forbids_tokens(engine: MlxEngine) -> None:
    forced = ask(PROMPTS[0], sampling=Sampling(temperature=0, logit_bias={300: 100.0}))
    plain, always = draw(engine, ask(PROMPTS[0]), forced)
    assert set(always) == {300}
    forbidden = ask(PROMPTS[0], sampling=Sampling(temperature=0, logit_bias={plain[0]: -100.0}))
    assert plain[0] not in draw(engine, forbidden)[0]
    with pytest.raises(RequestRefusedError, match=f"tokens are 0 to {VOCABULARY - 1}"):
        engine.render(ask("x", sampling=Sampling(logit_bias={VOCABULARY: 1.0})))


@pytest.mark.parametrize("name", ["presence_penalty", "frequency_penalty"])
def test_penalties_count_the_answer_and_not_the_prompt(name: str, engine: MlxEngine) -> None:
    token = engine.render(ask("quick")).tokens[0]
    biased = {token: 50.0}
    prompt = "quick" * 20
    sampling = msgspec.convert({"temperature": 0, "logit_bias": biased, name: 100.0}, Sampling)
    (tokens,) = draw(engine, ask(prompt, sampling=sampling, max_tokens=6))
    assert tokens[0] == token
    assert tokens.count(token) == 1


def test_presence_is_penalised_once_and_frequency_each_time(engine: MlxEngine) -> None:
    biased = {300: 1000.0, 301: 900.0}
    presence = Sampling(temperature=0, logit_bias=biased, presence_penalty=60.0)
    frequency = Sampling(temperature=0, logit_bias=biased, frequency_penalty=60.0)
    once, each = draw(engine, *[ask("x", sampling=s, max_tokens=6) for s in (presence, frequency)])
    assert once == [300] * 6
    assert set(each) == {300, 301}


def test_repetition_is_penalised_in_the_prompt_too(engine: MlxEngine) -> None:
    (plain,) = draw(engine, ask(PROMPTS[0], max_tokens=1))
    repeated = engine.render(ask(PROMPTS[0])).tokens
    strong = Sampling(temperature=0, repetition_penalty=1e6, logit_bias=dict.fromkeys(range(VOCABULARY), 20.0))
    (tokens,) = draw(engine, ask(PROMPTS[0], sampling=strong, max_tokens=8))
    assert len(set(tokens)) == len(tokens)
    assert not set(tokens) & set(repeated)
    assert len(plain) == 1


def test_log_probabilities_are_the_models(engine: MlxEngine) -> None:
    (steps,) = run(engine, ask(PROMPTS[0], logprobs=True, top_logprobs=VOCABULARY, max_tokens=3))
    for step in steps:
        if isinstance(step, TokenStep):
            assert step.logprob is not None
            values = np.array([other.logprob for other in step.logprob.top])
            assert len(values) == VOCABULARY
            assert np.exp(values).sum() == pytest.approx(1, abs=1e-4)
            assert step.logprob.logprob == values[0]


def test_the_end_token_is_not_said(engine: MlxEngine) -> None:
    ended = ask(PROMPTS[0], sampling=Sampling(temperature=0, logit_bias={END_TOKEN: 1000.0}), max_tokens=1)
    (steps,) = run(engine, ended)
    assert tokens_of(steps) == []
    assert text_of(steps) == ""
    assert end_of(steps) == EndStep(steps[-1].task, "stop")


def test_the_text_is_what_the_tokenizer_makes_of_the_tokens(engine: MlxEngine, tiny_model: TinyModel) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny_model() / "tokenizer.json"))
    for steps in run(engine, *[ask(prompt, max_tokens=60) for prompt in PROMPTS]):
        whole = tokenizer.decode(tokens_of(steps), skip_special_tokens=False)
        assert text_of(steps).rstrip("\ufffd") == whole.rstrip("\ufffd")
        assert whole.startswith(text_of(steps))


def test_the_template_opens_the_thinking_block(engine: MlxEngine) -> None:
    assert engine.markers.think_start == "<think>"
    assert engine.markers.tool_parser == "json_tools"
    assert engine.render(chat("hi", thinking=True)).reasoning_open
    assert not engine.render(chat("hi", thinking=False)).reasoning_open


def test_the_context_is_the_smaller_of_model_and_instance(engine: MlxEngine, tiny_model: TinyModel) -> None:
    assert engine.context_length == CONTEXT
    small = load_engine(tiny_model(), context_length=64)
    assert small.context_length == 64
    small.close()


def test_damaged_weights_end_in_a_fault_and_not_in_nonsense(tmp_path: Path) -> None:
    import mlx.core as mx

    from support.tiny_models import make_tiny_model

    folder = make_tiny_model(tmp_path / "damaged")
    weights = mx.load(str(folder / "model.safetensors"))
    assert isinstance(weights, dict)
    weights["lm_head.weight"] = mx.full(weights["lm_head.weight"].shape, mx.nan)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    engine = load_engine(folder)
    (steps,) = run(engine, ask("x", sampling=GREEDY))
    end = end_of(steps)
    assert isinstance(end, FaultStep)
    assert "NaN" in end.message
    engine.close()
