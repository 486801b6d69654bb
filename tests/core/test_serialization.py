"""Tensors and facts as bytes."""

import json
import math

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors, digest

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
words = st.text(min_size=1, max_size=8).filter(lambda word: word.isprintable())
facts = st.dictionaries(
    words.filter(lambda word: word != "groups"),
    st.integers() | st.booleans() | st.none() | st.text(max_size=5) | st.floats(allow_nan=False) | st.lists(words),
    max_size=4,
)


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    values = torch.arange(math.prod(shape)).view(shape).to(draw(st.sampled_from(TYPES)))
    return values.transpose(0, -1) if shape and draw(st.booleans()) else values


groups = st.dictionaries(words.filter(lambda word: "/" not in word), st.dictionaries(words, tensors(), max_size=3))


@given(groups, facts)
def test_what_is_packed_comes_back(packed: dict[str, Tensors], known: dict[str, object]) -> None:
    found, told = deserialize(serialize(packed, known))
    assert told == known
    assert found.keys() == packed.keys()
    for name, named in packed.items():
        assert digest(found[name]) == digest(named)


def test_groups_and_tensors_may_be_empty() -> None:
    found, told = deserialize(serialize({"state": {}, "model": {"w": torch.zeros(0, 3)}}, {}))
    assert found["state"] == {}
    assert found["model"]["w"].shape == (0, 3)
    assert told == {}


def test_layout_in_memory_does_not_matter() -> None:
    image = torch.arange(24.0).view(1, 2, 3, 4)
    odd = {
        "transposed": image[0, 0].T,
        "every other": torch.arange(10.0)[::2],
        "channels last": image.contiguous(memory_format=torch.channels_last),
        "expanded": torch.ones(1).expand(5),
    }
    found = deserialize(serialize({"g": odd}, {}))[0]["g"]
    assert all(torch.equal(found[name], value) for name, value in odd.items())


def test_names_with_slashes_and_facts_that_are_not_finite_survive() -> None:
    found, told = deserialize(serialize({"g": {"a/b/c": torch.ones(1)}}, {"weight": float("inf")}))
    assert list(found["g"]) == ["a/b/c"]
    assert told == {"weight": float("inf")}


def test_tensors_that_share_memory_are_packed_like_any_others() -> None:
    """A client may keep as its state what it also sends."""
    sent = torch.arange(4.0)
    found = deserialize(serialize({"model": {"w": sent}, "state": {"last": sent, "half": sent[:2]}}, {}))[0]
    assert torch.equal(found["model"]["w"], sent)
    assert torch.equal(found["state"]["last"], sent)
    assert torch.equal(found["state"]["half"], sent[:2])


def test_an_unpacked_tensor_has_its_own_memory() -> None:
    original = torch.ones(3)
    found = deserialize(serialize({"g": {"w": original}}, {}))[0]["g"]["w"]
    found.zero_()
    assert original.tolist() == [1.0, 1.0, 1.0]


WHOLE = serialize({"model": {"w": torch.arange(5.0)}, "state": {}}, {"round": 3})


@pytest.mark.parametrize("length", [*range(0, len(WHOLE) - 1, 7), len(WHOLE) - 1])
def test_a_record_cut_short_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match="not a record"):
        deserialize(WHOLE[:length])


@given(st.binary(max_size=60))
def test_garbage_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="not a record"):
        deserialize(raw)


@pytest.mark.parametrize(
    "metadata",
    [None, {"format": "pt"}, {"facts": "no json"}, {"facts": "{}"}, {"facts": "[]"}, {"facts": '{"groups": ["b"]}'}],
    ids=json.dumps,
)
def test_somebody_elses_safetensors_are_refused(metadata: dict[str, str] | None) -> None:
    with pytest.raises(ValueError, match="not a record"):
        deserialize(safetensors.torch.save({"a/w": torch.ones(2)}, metadata))
