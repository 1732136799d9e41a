"""Names of models, as people type them."""

import pytest
from msgspec.structs import replace

from exo.services.catalog.service import STARTER, Catalog, load_catalog
from exo.services.placement.memory import engine_of
from exo.streams import events as e
from exo.streams.ids import ModelId
from exo.streams.state import State
from support.services import fold, joined_state, make_card

BUILTIN = load_catalog()
EMPTY = State()


def find(name: str, state: State = EMPTY, catalog: Catalog = BUILTIN) -> str:
    card = catalog.find_card(name, state)
    return card.model_id if card else ""


def test_the_built_in_cards_can_be_read() -> None:
    cards = BUILTIN.cards(EMPTY)
    assert {"exo/scripted", "HuggingFaceTB/SmolLM2-135M-Instruct"} <= set(cards)
    assert all(card.n_layers > 0 and card.context_length > 0 for card in cards.values())
    assert engine_of(cards[ModelId("exo/scripted")]) == "scripted"
    assert engine_of(cards[ModelId("HuggingFaceTB/SmolLM2-135M-Instruct")]) == "mlx"


@pytest.mark.parametrize(
    "name",
    [STARTER, "Starter", "HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m-instruct", " SmolLM2-135M-Instruct "],
)
def test_a_model_has_many_spellings(name: str) -> None:
    assert find(name) == "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("name", "reserved"),
    [
        ("exo/scripted", True),
        ("EXO/Scripted", True),
        ("scripted", True),
        (STARTER, True),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", False),
        ("me/scripted", False),
    ],
)
def test_no_import_may_take_a_name_that_means_something_else(name: str, *, reserved: bool) -> None:
    assert BUILTIN.is_reserved(name) == reserved


def test_an_unknown_name_finds_nothing() -> None:
    assert find("nothing") == ""
    assert find("") == ""


def test_a_short_name_that_two_models_share_is_no_name() -> None:
    catalog = Catalog((make_card("a/same"), make_card("b/same"), make_card("b/other")))
    assert find("same", catalog=catalog) == ""
    assert find("A/Same", catalog=catalog) == "a/same"
    assert find("other", catalog=catalog) == "b/other"


def test_models_on_disk_and_custom_cards_are_known_and_win_but_for_built_in_names() -> None:
    held = make_card("exo/scripted", n_layers=7, name="left there by a tool")
    state = joined_state(held=(held, make_card("me/held")))
    state = fold(state, e.ModelCardAdded(card=make_card("me/custom")))
    card = BUILTIN.find_card("exo/scripted", state)
    assert card == replace(held, name="Scripted", family="exo", base_model="exo/scripted")
    assert find("held", state) == "me/held"
    assert find("custom", state) == "me/custom"


def test_typing_mistakes_get_suggestions() -> None:
    assert BUILTIN.suggest("exo/scriptd", EMPTY) == ("exo/scripted",)
    assert BUILTIN.suggest("smolm2-135m", EMPTY)[0] == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert BUILTIN.suggest("qqqqqqqq", EMPTY) == ()


def test_no_more_than_three_models_are_suggested_and_none_twice() -> None:
    catalog = Catalog(tuple(make_card(f"org/model-{number}") for number in range(9)))
    found = catalog.suggest("org/model", EMPTY)
    assert len(found) == len(set(found)) == 3
