"""What every method promises to every engine."""

import copy
import functools
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from rofl.core.tensors import digest, floating, mismatch
from rofl.data import Shard
from rofl.engines.client import run_client
from rofl.engines.records import pack, unpack
from rofl.engines.states import StateStore
from rofl.methods import METHODS, Global, Method, Round
from tests.methods import toy

CLIENTS = toy.clients()


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    return toy.build(request.param)


@pytest.fixture
def later(method: Method) -> Global:
    """The global state after two rounds, when there is something to broadcast besides weights."""
    return _two_rounds(method)


@functools.cache
def _two_rounds(method: Method) -> Global:
    return toy.play(method, list(CLIENTS.values()), rounds=2)


@pytest.mark.parametrize("data", CLIENTS.values(), ids=CLIENTS.keys())
def test_the_same_inputs_give_the_same_bits_whatever_the_network_did_before(
    method: Method, later: Global, data: Shard
) -> None:
    rnd = Round(3, toy.SEED, client=1)
    first = toy.bits(*run_client(method, toy.network(), later, {}, data, rnd))
    used = toy.network()
    run_client(method, used, later, {}, CLIENTS["all classes, some labels wrong"], Round(2, toy.SEED, client=0))
    used.eval()
    assert toy.bits(*run_client(method, used, later, {}, data, rnd)) == first


def test_another_round_and_another_client_draw_other_batches(method: Method, later: Global) -> None:
    data = CLIENTS["all classes, some labels wrong"]
    updates = [toy.train(method, later, data, index, client) for index, client in [(3, 0), (4, 0), (3, 1)]]
    assert len({digest(update.model) for update in updates}) == 3


@pytest.mark.parametrize("data", CLIENTS.values(), ids=CLIENTS.keys())
def test_inputs_stay_as_they_were(method: Method, later: Global, data: Shard) -> None:
    state = {"memory": torch.arange(3.0)}
    before = copy.deepcopy((method, later, state, data))
    update, _ = run_client(method, toy.network(), later, state, data, Round(3, toy.SEED, client=0))
    method.server(later, method.blank(later) + update, Round(3, toy.SEED))
    assert method == before[0]
    assert digest(later.model, later.extra) == digest(before[1].model, before[1].extra)
    assert digest(state) == digest(before[2])
    assert all(torch.equal(getattr(data, name), getattr(before[3], name)) for name in ("pixels", "rows", "labels"))


@pytest.mark.parametrize("data", CLIENTS.values(), ids=CLIENTS.keys())
def test_blank_is_the_neutral_element_and_has_the_shapes_of_an_update(
    method: Method, later: Global, data: Shard
) -> None:
    blank, update = method.blank(later), toy.train(method, later, data, 3)
    assert mismatch(update.model, blank.model) is None
    assert mismatch(update.extra, blank.extra) is None
    assert blank.weight == 0
    assert toy.bits(blank + update) == toy.bits(update)
    assert toy.bits(update + blank) == toy.bits(update)


def test_the_sum_of_two_updates_is_the_same_in_either_order(method: Method, later: Global) -> None:
    left, right = (toy.train(method, later, data, 3) for data in list(CLIENTS.values())[:2])
    assert toy.bits(left + right) == toy.bits(right + left)


def test_the_server_averages_weights_and_running_statistics_by_samples(method: Method, later: Global) -> None:
    shards, total, local = list(CLIENTS.values())[:3], method.blank(later), []
    for client, data in enumerate(shards):
        net = toy.network()
        total = total + toy.train(method, later, data, 3, client, net)
        local.append({name: value.double().clone() for name, value in net.state_dict().items()})
    merged = method.server(later, total, Round(3, toy.SEED)).model
    samples = sum(len(data) for data in shards)
    assert any(name.endswith("running_var") for name in merged)
    for name, value in merged.items():
        average = sum(len(data) / samples * own[name] for data, own in zip(shards, local, strict=True))
        torch.testing.assert_close(value.double(), average, rtol=1e-5, atol=1e-6, msg=name)
        assert not torch.equal(value, later.model[name])


def test_only_what_can_be_averaged_is_global(method: Method) -> None:
    net = toy.network()
    begun = method.begin(net)
    assert any(name.endswith("num_batches_tracked") for name in net.state_dict())
    assert begun.model.keys() == floating(net.state_dict()).keys()
    assert all(value.is_floating_point() for value in [*begun.model.values(), *begun.extra.values()])


def test_what_the_server_begins_with_is_a_copy(method: Method) -> None:
    net = toy.network()
    begun = method.begin(net)
    before = digest(begun.model)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    assert digest(begun.model) == before


def test_names_shapes_and_types_of_the_global_state_never_change(method: Method, later: Global) -> None:
    begun = method.begin(toy.network())
    for now, then in [(later.model, begun.model), (later.extra, begun.extra)]:
        assert mismatch(now, then) is None
        assert all(now[name].dtype == then[name].dtype for name in then)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_the_state_survives_storage_and_records(method: Method, later: Global, place: str, tmp_path: Path) -> None:
    _, state = run_client(
        method, toy.network(), later, {}, CLIENTS["all classes, some labels wrong"], Round(3, toy.SEED, client=5)
    )
    store = StateStore(tmp_path if place == "disk" else None)
    store.save(5, 3, state)
    assert digest(store.load(5)) == digest(state)
    assert digest(unpack(pack({"state": state}, {}))[0]["state"]) == digest(state)


@pytest.mark.parametrize("name", ["small", "mlp", "cnn9"])
def test_awkward_clients_at_the_papers_learning_rate_never_give_nan(method: Method, name: str) -> None:
    net = toy.network(name, width=0.06)
    glob = method.begin(net)
    for index in range(1, 6):
        total = method.blank(glob)
        for client, data in enumerate(CLIENTS.values()):
            update = toy.train(method, glob, data, index, client, net)
            assert mismatch(update.model, total.model) is None
            assert mismatch(update.extra, total.extra) is None
            assert np.isfinite(list(update.metrics.values())).all()
            assert update.weight == len(data)
            total = total + update
        glob = method.server(glob, total, Round(index, toy.SEED))
    blank = method.blank(glob)
    assert mismatch(glob.model, blank.model) is None


def _all_random_states() -> tuple[bytes, str, object]:
    return torch.get_rng_state().numpy().tobytes(), str(np.random.get_state()), random.getstate()  # noqa: NPY002


def test_a_client_neither_changes_nor_reads_the_callers_randomness(method: Method) -> None:
    net = toy.network("cnn9", width=0.06)  # with dropout
    glob, rnd = method.begin(net), Round(1, toy.SEED, client=2)
    before = _all_random_states()
    first = run_client(method, net, glob, {}, CLIENTS["two classes are missing"], rnd)
    assert _all_random_states() == before
    with torch.random.fork_rng(devices=[]):
        torch.rand(11)
        second = run_client(method, net, glob, {}, CLIENTS["two classes are missing"], rnd)
    assert toy.bits(*first) == toy.bits(*second)


def test_a_client_that_raises_gives_the_callers_randomness_and_threads_back(method: Method) -> None:
    threads, before = torch.get_num_threads(), _all_random_states()
    with pytest.raises(ValueError, match="another network's"):
        run_client(method, toy.network("mlp"), method.begin(toy.network()), {}, toy.shard([0, 1]), Round(1, 0, 0))
    assert _all_random_states() == before
    assert torch.get_num_threads() == threads


def test_bits_do_not_depend_on_the_callers_threads(method: Method, later: Global) -> None:
    data, threads = CLIENTS["all classes, some labels wrong"], torch.get_num_threads()
    found = []
    try:
        for count in (1, 2):
            torch.set_num_threads(count)
            found.append(toy.bits(toy.train(method, later, data, 3)))
            assert torch.get_num_threads() == count
    finally:
        torch.set_num_threads(threads)
    assert found[0] == found[1]
