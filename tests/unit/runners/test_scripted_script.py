"""The script of the scripted engine is checked before anything starts."""

import pytest

from exo.runners.engines.scripted.script import NEVER, read_script


def test_nothing_is_slow_or_faulty_unless_it_is_said() -> None:
    script = read_script({})
    assert (script.tokens_per_second, script.has_faults, script.fail_load) == (0, False, 0)


def test_numbers_become_counts_and_switches() -> None:
    script = read_script({"tokens_per_second": 12.5, "crash_after_tokens": 5.0, "fail_load": 1.0})
    assert (script.tokens_per_second, script.crash_after_tokens, script.fail_load) == (12.5, 5, 1)
    assert script.has_faults
    assert script.hang_after_tokens == NEVER


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"crash_after_token`.*known are .*crash_after_tokens"):
        read_script({"crash_after_token": 1})
