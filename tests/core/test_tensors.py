import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl.core.tensors import add, check_like, digest, float_entries, round_bf16, scaled_difference, to_bf16, zeros_like
from tests.core.draws import real
from tests.naive import equations

numbers = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=5)
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


def test_floating_leaves_counters_out():
    mixed = {"w": torch.ones(2), "half": torch.ones(1, dtype=torch.float16), "steps": torch.tensor(3)}
    assert float_entries(mixed).keys() == {"w", "half"}


@given(values=numbers)
def test_zeros_are_neutral_to_add(values):
    tensors = {"w": torch.tensor(values), "b": torch.ones(2, 1)}
    zeros = zeros_like(tensors)
    for total in (add(tensors, zeros), add(zeros, tensors)):
        assert all(torch.equal(total[name], tensors[name]) for name in tensors)


def test_add_adds_name_by_name_and_changes_neither_side():
    left, right = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([10.0, 20.0])}
    assert add(left, right)["w"].tolist() == [11.0, 22.0]
    assert left["w"].tolist() == [1.0, 2.0]
    assert right["w"].tolist() == [10.0, 20.0]


def test_adding_different_names_is_refused():
    with pytest.raises(ValueError, match=r"different names: \['a', 'c'\]"):
        add({"a": torch.ones(1), "b": torch.ones(1)}, {"b": torch.ones(1), "c": torch.ones(1)})


@given(models=st.lists(st.lists(st.floats(-10, 10), min_size=3, max_size=3), min_size=1, max_size=4), data=st.data())
def test_summed_differences_give_the_papers_weighted_mean(models, data):
    counts = data.draw(st.lists(st.integers(1, 100), min_size=len(models), max_size=len(models)))
    old = {"w": real([0.5, -1.0, 2.0])}
    total = zeros_like(old)
    for model, count in zip(models, counts, strict=True):
        total = add(total, scaled_difference({"w": real(model)}, old, count))
    assert_close(old["w"] + total["w"] / sum(counts), real(equations.fedavg(models, counts)))


def test_scaled_difference_leaves_out_what_the_old_side_lacks():
    found = scaled_difference({"w": torch.tensor([3.0]), "steps": torch.tensor(7)}, {"w": torch.tensor([1.0])}, 10)
    assert {name: value.tolist() for name, value in found.items()} == {"w": [20.0]}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        ({"w": torch.zeros(2, 3), "b": torch.zeros(1)}, None),
        ({"w": torch.zeros(2, 3)}, "'b' is missing"),
        ({"w": torch.zeros(2, 3), "b": torch.zeros(1), "x": torch.zeros(1)}, "'x' was not asked for"),
        ({"w": torch.zeros(3, 2), "b": torch.zeros(1)}, "'w' has shape (3, 2), not (2, 3)"),
        ({"w": torch.zeros(2, 3), "b": torch.tensor([float("nan")])}, "'b' is not finite"),
        ({"w": torch.zeros(2, 3), "b": torch.tensor([float("-inf")])}, "'b' is not finite"),
        ({}, "'b' is missing"),
    ],
)
def test_mismatch_says_why(found, reason):
    assert check_like(found, {"w": torch.zeros(2, 3), "b": torch.zeros(1)}) == reason


def test_digest_is_the_same_in_every_process_and_version():
    assert digest({"w": torch.tensor([1.0, -2.0]), "steps": torch.tensor(3)}) == (
        "92a3e889523f8ac8b95d1ef822c9d63c86f6e4cfb2ef71c381381f69951be738"
    )


@pytest.mark.parametrize("dtype", DTYPES)
@given(values=st.lists(st.integers(0, 100), min_size=1, max_size=6), data=st.data())
def test_digest_differs_by_any_single_bit(dtype, values, data):
    value = torch.tensor(values).to(dtype)
    flat = value.clone().view(torch.uint8)
    place, bit = data.draw(st.integers(0, len(flat) - 1)), 0 if dtype == torch.bool else data.draw(st.integers(0, 7))
    flat[place] ^= 1 << bit
    assert digest({"w": flat.view(dtype)}) != digest({"w": value})


@pytest.mark.parametrize(
    "other",
    [
        {"v": torch.zeros(2, 3)},
        {"w": torch.zeros(3, 2)},
        {"w": torch.zeros(6)},
        {"w": torch.zeros(2, 3, dtype=torch.int32)},  # the same bytes
        {"w": -torch.zeros(2, 3)},  # equal numbers, other bits
        {"w": torch.zeros(2, 3), "x": torch.zeros(0)},
        {},
    ],
    ids=["name", "shape", "dimensions", "type", "sign of zero", "an empty tensor more", "nothing"],
)
def test_digest_differs_by_name_type_and_shape(other):
    assert digest(other) != digest({"w": torch.zeros(2, 3)})


def test_digest_knows_which_group_a_tensor_is_in():
    w = {"w": torch.ones(2)}
    assert len({digest(w), digest({}, w), digest(w, w)}) == 3


def test_digest_does_not_depend_on_order_or_memory_layout():
    image = torch.arange(24.0).view(1, 2, 3, 4)
    flipped = {"b": torch.ones(1), "a": image.contiguous(memory_format=torch.channels_last)}
    assert digest(flipped) == digest({"a": image, "b": torch.ones(1)})
    assert digest({"a": image.transpose(2, 3)}) == digest({"a": image.transpose(2, 3).contiguous()})


def test_digest_of_a_parameter_is_that_of_its_values():
    assert digest({"w": torch.nn.Parameter(torch.ones(2))}) == digest({"w": torch.ones(2)})


@given(values=st.lists(st.floats(width=32), min_size=1, max_size=8))
def test_rounding_once_is_enough(values):
    once = round_bf16({"w": torch.tensor(values)})
    assert once["w"].dtype == torch.float32
    assert digest(round_bf16(once)) == digest(once)
    assert once["w"].isnan().equal(torch.tensor(values).isnan())


@given(value=st.floats(2.0**-100, 2.0**100, width=32), sign=st.sampled_from([-1, 1]))
def test_rounding_is_to_the_nearest_of_eight_bits(value, sign):
    """That is by a share of 0.4 % at most."""
    found = round_bf16({"w": torch.tensor(sign * value)})["w"].item()
    assert abs(found - sign * value) <= 2**-8 * value


def test_only_float32_is_rounded():
    others = {str(kind): torch.tensor([1.001]).to(kind) for kind in DTYPES if kind != torch.float32}
    assert digest(round_bf16(others)) == digest(others) == digest(to_bf16(others))


def test_half_the_bytes_hold_counts_to_256_and_sums_far_beyond_float16():
    whole = {"w": torch.arange(257.0)}
    assert digest(round_bf16(whole)) == digest(whole)
    assert round_bf16({"w": torch.tensor([1e30])})["w"].isfinite().all()
    assert to_bf16(whole)["w"].element_size() == 2
