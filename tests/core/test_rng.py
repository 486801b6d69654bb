from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.rng import derive, generator, numpy_generator, seeded

keys = st.lists(st.one_of(st.integers(-5, 5), st.sampled_from(["", "a", "batches", "1"])), max_size=4).map(tuple)


def test_derive_is_the_same_in_every_process_and_version():
    assert derive(0) == 3_456_079_177_858_693_020
    assert derive(7, 3, 12, "batches") == 3_581_298_304_156_988_417


@given(seed=st.integers(-(2**40), 2**40), key=keys)
def test_derive_gives_63_bits(seed, key):
    assert 0 <= derive(seed, *key) < 2**63


@given(left=st.tuples(st.integers(0, 3), keys), right=st.tuples(st.integers(0, 3), keys))
def test_only_equal_seeds_and_keys_give_equal_seeds(left, right):
    assert (derive(left[0], *left[1]) == derive(right[0], *right[1])) == (left == right)


def test_a_number_and_its_text_are_different_keys():
    assert derive(0, 1) != derive(0, "1")


def test_neighbouring_keys_give_unrelated_seeds():
    bits = [bin(derive(0, key) ^ derive(0, key + 1)).count("1") for key in range(50)]
    assert 25 < sum(bits) / len(bits) < 38  # half of 63


@pytest.mark.parametrize("make", [generator, numpy_generator])
def test_generators_repeat_by_key_and_leave_the_global_state_alone(make):
    def draw(*key):
        rng = make(*key)
        return rng.random(4).tolist() if isinstance(rng, np.random.Generator) else torch.rand(4, generator=rng).tolist()

    state = torch.get_rng_state()
    assert draw(1, "a") == draw(1, "a")
    assert draw(1, "a") != draw(1, "b")
    assert draw(1, "a") != draw(2, "a")
    assert torch.equal(torch.get_rng_state(), state)


def test_seeded_repeats_and_gives_the_state_back():
    state = torch.get_rng_state()
    with seeded(5):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), state)
    with seeded(5):
        assert torch.equal(torch.rand(3), first)
    with seeded(6):
        assert not torch.equal(torch.rand(3), first)


def test_seeded_gives_the_state_back_after_an_error():
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), seeded(5):
        torch.rand(3) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), state)


def test_seeded_gives_the_state_of_a_device_back_too(monkeypatch):
    asked = []
    monkeypatch.setattr(
        torch.random, "fork_rng", lambda devices, device_type: asked.append((devices, device_type)) or nullcontext()
    )
    state, gpu = torch.get_rng_state(), torch.device("cuda", 1)
    for device in (torch.device("cpu"), gpu):
        with seeded(5, device):
            pass
    torch.set_rng_state(state)
    assert asked == [([], "cpu"), ([gpu], "cuda")]
