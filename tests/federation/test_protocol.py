"""What travels comes out as it went in, bit by bit, and nothing else is taken for it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("flwr", reason="Flower is not installed: pip install '.[flower]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from rofl.core.tensors import Tensors, digest, round_bf16
from rofl.federation.client_app import load_state, save_state
from rofl.federation.protocol import (
    RoundRequest,
    decode_request,
    decode_update,
    encode_request,
    encode_update,
    put_sums,
    readdress,
)
from rofl.federation.site_memory import StateFile
from rofl.federation.tensor_records import get_tensors, put_tensors
from rofl.methods.base import ServerState, Update

KINDS = (torch.float32, torch.float64, torch.int64, torch.uint8)


@st.composite
def tensors(draw: st.DrawFn) -> Tensors:
    shapes = st.lists(st.integers(0, 3), max_size=4)
    named = draw(
        st.dictionaries(st.text(min_size=1, max_size=5), st.tuples(shapes, st.sampled_from(KINDS)), max_size=5)
    )
    rng = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    return {
        name: (torch.randn(shape, generator=rng) * 100).to(kind).transpose(0, -1)
        if shape
        else torch.ones((), dtype=kind)
        for name, (shape, kind) in named.items()
    }


@given(tensors(), tensors(), st.floats(allow_nan=False), st.integers(0, 2**40))
def test_orders_and_updates_come_out_as_they_went_in(model: Tensors, aux: Tensors, weight: float, index: int) -> None:
    sent = RoundRequest("a = 1", index, 3, "[]")
    request, server_state = decode_request(encode_request(sent, ServerState(model, aux)))
    assert request == sent
    assert server_state is not None
    assert digest(server_state.model, server_state.aux) == digest(model, aux)
    update = decode_update(encode_update(Update(model, weight, aux, {"samples": 5.0})))
    assert digest(update.model, update.aux) == digest(model, aux)
    assert (update.weight, update.metrics) == (weight, {"samples": 5.0})


HALF = 'transport = "half"'


@given(tensors(), tensors())
def test_half_the_bytes_bring_what_rounding_leaves(model: Tensors, aux: Tensors) -> None:
    request = RoundRequest(HALF, 2)
    down, up = encode_request(request, ServerState(model, aux)), encode_update(Update(model, 1.0, aux), bf16=True)
    server_state, update = decode_request(down)[1], decode_update(up, bf16=True)
    assert server_state is not None
    for found in (server_state, update):
        assert digest(found.model, found.aux) == digest(round_bf16(model), round_bf16(aux))
    numbers = sum(value.numel() for group in (model, aux) for value in group.values() if value.dtype == torch.float32)
    for content in (down, up):
        sent = content.array_records["arrays"].get("bfloat16")
        assert (sent.numpy().nbytes if sent else 0) == 2 * numbers
        assert "float32" not in content.array_records["arrays"]
    last = decode_request(encode_request(request, ServerState(model, aux), exact=True), exact=True)[1]
    assert last is not None
    assert digest(last.model, last.aux) == digest(model, aux)


@pytest.mark.parametrize(("asked", "other"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_only_the_kind_that_the_settings_ask_for_is_taken(asked: str, other: str) -> None:
    tensors, bf16, wrong = {"w": torch.ones(3)}, asked == "bfloat16", f"{other}, where the settings ask for {asked}"
    with pytest.raises(ValueError, match=wrong):
        decode_update(encode_update(Update(tensors, 1.0), not bf16), bf16)
    message = encode_request(RoundRequest("" if bf16 else HALF), ServerState(tensors))
    with pytest.raises(ValueError, match=wrong):
        decode_request(readdress(message, RoundRequest(HALF if bf16 else "")))


def test_the_last_state_is_never_rounded() -> None:
    state, request = ServerState({"w": torch.tensor([1.001])}), RoundRequest(HALF)
    assert "float32" in encode_request(request, state, exact=True).array_records["arrays"]
    with pytest.raises(ValueError, match="float32, where"):
        decode_request(encode_request(request, state, exact=True))


def test_a_request_without_a_model() -> None:
    assert decode_request(encode_request(RoundRequest("")))[1] is None


def _with(name: str, record: ArrayRecord | ConfigRecord) -> RecordDict:
    content = encode_update(Update({"w": torch.zeros(3)}, 1.0))
    content[name] = record
    return content


BROKEN = {
    "no layout": _with("layout", ArrayRecord({})),
    "other groups": put_tensors(_with("other", ConfigRecord({})), model={}, more={}),
    "too short": _with("arrays", ArrayRecord({"float32": Array(np.zeros(2, np.float32))})),
    "too long": _with("arrays", ArrayRecord({"float32": Array(np.zeros(4, np.float32))})),
    "another kind": _with("arrays", ArrayRecord({"float64": Array(np.zeros(3))})),
    "no json": _with("layout", ConfigRecord({"groups": '["model", "aux"]', "tensors": "["})),
    "strange json": _with("layout", ConfigRecord({"groups": '["model", "aux"]', "tensors": "[1]"})),
    "huge": _with(
        "layout",
        ConfigRecord({"groups": '["model", "aux"]', "tensors": json.dumps([["model", "w", "float32", [10**12]]])}),
    ),
    "half named as such": _with("arrays", ArrayRecord({"bfloat16": Array(np.zeros(3, np.uint16))})),
    "pickle": _with("arrays", ArrayRecord({"float32": Array("float32", (1,), "numpy.ndarray", b"\x80\x04K\x01.")})),
    "no weight": put_tensors(put_sums(RecordDict(), {}), model={}, aux={}),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_message_that_is_broken_is_refused(name: str) -> None:
    with pytest.raises(ValueError):
        decode_update(BROKEN[name])


def test_a_state_is_kept_for_the_round_it_came_from_and_its_own() -> None:
    store = RecordDict()
    for index in (1, 2, 3):
        save_state(store, RoundRequest("", index, index - 1), {"labels": torch.full((2,), float(index))})
    assert load_state(store, 1) == {}
    assert load_state(store, 2)["labels"].tolist() == [2, 2]
    assert load_state(store, 3)["labels"].tolist() == [3, 3]
    assert get_tensors(put_tensors(RecordDict(), state={}), "state") == [{}]


def test_memory_outlives_the_process_and_damage_is_no_memory(tmp_path: Path) -> None:
    memory, store = StateFile(tmp_path / "memory"), RecordDict()
    save_state(store, RoundRequest("", 4, 3), {"labels": torch.ones(2)})
    memory.save(store)
    fresh = RecordDict()
    memory.load_into(fresh)
    assert load_state(fresh, 4)["labels"].tolist() == [1, 1]
    (tmp_path / "memory").write_bytes(b"half a f")
    empty = RecordDict()
    memory.load_into(empty)
    assert load_state(empty, 4) == {}
    memory.save(RecordDict())
    assert not (tmp_path / "memory").exists()
