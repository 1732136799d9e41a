"""The starter model: real weights through our own import, engine and tokenizer."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from exo.runners.engines.mlx.engine import MlxEngine
from exo.runners.gguf.folder import CARD_FILE
from exo.streams.models import ModelCard
from support.engines import chat, load_engine, run, text_of, tokens_of

SKY = "Explain in three sentences why the sky is blue."
"""Its first token is 1.5 nat ahead of the next; llama.cpp gives the same text."""


@pytest.fixture(scope="module")
def starter(starter_model: Path) -> Iterator[MlxEngine]:
    engine = load_engine(starter_model)
    yield engine
    engine.close()


def test_the_card_knows_the_model(starter_model: Path) -> None:
    card = msgspec.json.decode((starter_model / CARD_FILE).read_bytes(), type=ModelCard)
    assert (card.model_id, card.architecture, card.quantization) == ("starter", "LlamaForCausalLM", "Q4_1")
    assert (card.parameters, card.n_layers, card.context_length) == (134_515_008, 30, 8192)


def test_it_makes_sense_and_agrees_with_mlx_lm(starter: MlxEngine) -> None:
    import mlx.core as mx
    from mlx_lm.generate import generate_step

    request = chat(SKY, max_tokens=10)
    (steps,) = run(starter, request)
    assert text_of(steps).startswith("The sky is blue because of a")
    assert starter._batch is not None
    model = starter._batch._generator.model
    direct = generate_step(mx.array(starter.render(request).tokens), model, max_tokens=10)
    assert tokens_of(steps) == [int(token) for token, _ in direct]


def test_two_at_once_answer_as_one_alone(starter: MlxEngine) -> None:
    requests = [chat(SKY, max_tokens=6), chat("What is 2+2?", max_tokens=6)]
    alone = [tokens_of(run(starter, request)[0]) for request in requests]
    assert [tokens_of(steps) for steps in run(starter, *requests)] == alone


def test_foreign_characters_come_whole(starter: MlxEngine) -> None:
    tokens = starter.render(chat("世界 😀 ñandú")).tokens
    assert starter._language is not None
    words = starter._language.detokenization.start()
    pieces = [words.add(token) for token in tokens]
    assert "世界 😀 ñandú" in "".join(pieces)
    assert not any("\ufffd" in piece for piece in pieces)
    assert len(pieces) > len([piece for piece in pieces if piece])
