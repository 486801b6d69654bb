"""Networks whose sizes somebody else chose."""

import pytest

from rofl.errors import UserError
from rofl.simulation.network_spec import NetworkSpec


@pytest.mark.parametrize(
    ("name", "shape", "classes", "width", "problem"),
    [
        ("mlp", (3, 100_000, 100_000), 10, 1.0, "takes .* GB, more than half of this machine's memory"),
        ("small", (10**12, 4, 4), 10, 1.0, "takes .* GB, more than half of this machine's memory"),
        ("cnn9", (3, 32, 32), 10, 1000.0, "takes .* GB, more than half of this machine's memory"),
        ("linear", (10**9, 10**9, 1000), 10, 1.0, "cannot be built"),
    ],
)
def test_a_network_that_fills_the_memory_is_one_sentence(
    name: str, shape: tuple[int, int, int], classes: int, width: float, problem: str
) -> None:
    """A saved model, or a coordinator, names the sizes; they cost nothing to write down."""
    with pytest.raises(UserError, match=problem):
        NetworkSpec(name, shape, classes, width, 0).build_base()
