"""What a person typed, in the path of a request."""

import pytest

from exo.ops.api_path import fill_model_path, fill_path
from exo.ops.errors import UsageError


def test_a_name_stays_one_part_of_the_path() -> None:
    assert (
        fill_path("/v1/nodes/{}/drain", "my box/../x?y#z", what="node") == "/v1/nodes/my%20box%2F..%2Fx%3Fy%23z/drain"
    )
    assert fill_path("/v1/nodes/{}/drain", "kühl", what="node") == "/v1/nodes/k%C3%BChl/drain"
    assert fill_model_path("/models/{}", "org/Model 1?") == "/models/org/Model%201%3F"


@pytest.mark.parametrize("odd", ["", "  ", ".", "..", "a\nb", "a\x00"])
def test_what_names_nothing_is_refused_here(odd: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a node"):
        fill_path("/v1/nodes/{}/drain", odd, what="name of a node")
    with pytest.raises(UsageError, match="exo models list"):
        fill_model_path("/models/{}", odd)


@pytest.mark.parametrize("odd", ["/", "org/", "/model", "org/../state", "org//model"])
def test_a_model_is_no_way_to_another_path(odd: str) -> None:
    with pytest.raises(UsageError):
        fill_model_path("/models/{}", odd)
