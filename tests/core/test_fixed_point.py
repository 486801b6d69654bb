"""Numbers as integers: rounding, ranges, and sums that do not depend on their order."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.fixed_point import (
    NUMBER_BITS,
    TENSOR_BITS,
    decode,
    encode,
    largest,
    largest_number,
    round_number,
)
from rofl.core.tensors import add
from tests.naive import fixed_point as naive

CLIENTS = 8
floats32 = st.floats(-largest(CLIENTS), largest(CLIENTS), width=32)
cohorts = st.lists(st.lists(floats32, min_size=3, max_size=3), min_size=1, max_size=CLIENTS)
numbers = st.lists(st.floats(-largest_number(CLIENTS), largest_number(CLIENTS)), min_size=1, max_size=CLIENTS)


@given(cohorts)
def test_sums_are_those_of_the_slow_twin_in_any_order(cohort: list[list[float]]) -> None:
    encoded = [encode({"w": torch.tensor(values)}, CLIENTS) for values in cohort]
    totals = []
    for order in (encoded, encoded[::-1], random.Random(0).sample(encoded, len(encoded))):
        total = {"w": torch.zeros(3, dtype=torch.int64)}
        for each in order:
            total = add(total, each)
        totals.append(total["w"].tolist())
    assert totals[0] == totals[1] == totals[2]
    expected = [naive.summed(list(column), TENSOR_BITS) for column in zip(*cohort, strict=True)]
    assert decode({"w": torch.tensor(totals[0])})["w"].tolist() == torch.tensor(expected).tolist()


@given(floats32)
def test_one_value_is_the_nearest_multiple_and_half_goes_to_the_even_one(value: float) -> None:
    (found,) = encode({"w": torch.tensor([value])}, CLIENTS)["w"].tolist()
    assert found == naive.nearest(value, TENSOR_BITS)
    assert abs(found) <= 2**62 // CLIENTS


@pytest.mark.parametrize(("steps", "rounded"), [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (0.75, 1)])
def test_halves(steps: float, rounded: int) -> None:
    assert encode({"w": torch.tensor([steps / 2**TENSOR_BITS])}, 1)["w"].tolist() == [rounded]
    assert round_number("loss", steps / 2**NUMBER_BITS, 1) == rounded / 2**NUMBER_BITS


@given(numbers)
def test_numbers_add_exactly_as_floats(values: list[float]) -> None:
    rounded = [round_number("loss", value, CLIENTS) for value in values]
    assert sum(rounded) == sum(reversed(rounded)) == math.fsum(rounded)
    assert sum(rounded) == naive.summed(values, NUMBER_BITS)


@given(st.integers(1, 10**6))
def test_the_largest_values_of_all_clients_do_not_wrap_around(clients: int) -> None:
    biggest = torch.tensor([largest(clients)]).nextafter(torch.zeros(1))  # float32 may be above it
    (steps,) = encode({"w": biggest}, clients)["w"].tolist()
    assert 0 < steps * clients < 2**63
    count = round_number("samples", largest_number(clients), clients)
    assert count * 2**NUMBER_BITS * clients <= 2**53


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (torch.tensor([math.nan]), "'w' is not finite"),
        (torch.tensor([0.0, -math.inf]), "'w' is not finite"),
        (torch.tensor([1e36]), r"'w' has a value above 3.44e\+10, the largest in fixed point"),
        (torch.tensor([1.0]).double(), "'w' is torch.float64"),
        (torch.tensor([1]), "'w' is torch.int64"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(value: torch.Tensor, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode({"v": torch.zeros(1), "w": value}, CLIENTS)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (math.nan, "its loss is not finite"),
        (math.inf, "its loss is not finite"),
        (1e12, "the largest in fixed point is 1.72e"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(value: float, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        round_number("loss", value, CLIENTS)


def test_a_sum_that_wraps_around_on_its_way_is_right_at_its_end() -> None:
    """As masks do, which are any 64 bits."""
    mask = torch.tensor([2**63 - 1])
    masked = encode({"w": torch.tensor([1.5])}, 1)["w"] + mask
    assert int(masked) < 0
    assert decode({"w": masked - mask})["w"].tolist() == [1.5]


def test_nothing_and_scalars_are_tensors_too() -> None:
    encoded = encode({"none": torch.empty(0, 3), "one": torch.tensor(2.0)}, 1)
    assert decode(encoded)["none"].shape == (0, 3)
    assert decode(encoded)["one"] == 2.0
