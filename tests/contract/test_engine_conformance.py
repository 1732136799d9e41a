"""The scripted engine keeps the contract that every engine keeps (see support.engine_conformance)."""

import pytest

from exo.runners.engines.engine import Engine
from exo.runners.engines.fake import ScriptedEngine
from support.engine_conformance import Build, EngineConformance, run, say
from support.requests import start_scripted


class TestScriptedEngine(EngineConformance):
    long_text = "[[say:one two three four five six seven eight nine ten eleven twelve thirteen fourteen]]"
    other_texts = ("Name a colour.", "[[think:the sea]][[say:is deep and blue and wide]]", "[[tool:why {}]]")
    foreign_text = "[[say:世界 😀 ñandú]]"

    @pytest.fixture(scope="class")
    @classmethod
    def build(cls) -> Build:
        return lambda: ScriptedEngine(start_scripted(context_length=2048))

    def test_it_answers_exactly_what_it_is_told(self, engine: Engine) -> None:
        outcome = run(engine, {"a": say("[[say:世界 😀]]", max_tokens=100)})["a"]
        assert outcome.text == "世界 😀"
        assert outcome.end is not None
        assert outcome.end.reason == "stop"


class TestPacedScriptedEngine(TestScriptedEngine):
    @pytest.fixture(scope="class")
    @classmethod
    def build(cls) -> Build:
        script = {"tokens_per_second": 2000.0, "prefill_tokens_per_second": 100_000.0, "load_seconds": 0.02}
        return lambda: ScriptedEngine(start_scripted(context_length=2048, script=script, prefill_step=64))
