"""How long a dying server is given before the next start."""

from exo.broker.server import LONGEST_PAUSE, choose_pause


def test_the_first_death_is_answered_at_once() -> None:
    assert choose_pause(0) == 0


def test_repeated_deaths_are_answered_ever_later_up_to_a_limit() -> None:
    pauses = [choose_pause(deaths) for deaths in range(1, 10)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 0.2
    assert pauses[-1] == LONGEST_PAUSE
