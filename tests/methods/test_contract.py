"""What every method promises to every engine."""

import copy
import functools
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors, check_like, digest, float_entries
from rofl.data import ClientDataset
from rofl.methods import METHODS, Method, Rofl, RoundContext, ServerState, Update
from rofl.methods.fedcorr import FedCorr
from rofl.methods.fedfixer import FedFixer
from rofl.methods.fednoro import FedNoRo
from rofl.models import Network
from rofl.simulation.client import ClientStateStore, run_client
from tests.methods import toy

CLIENTS = toy.clients()
THIRD = RoundContext(3, toy.SEED, client=1)
OWN_WEIGHTS = (FedCorr, FedFixer, FedNoRo)  # a client's weight may be less than its number of samples


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    return toy.build(request.param, start=2)  # labels are corrected from round 2 on


@pytest.fixture
def later(method: Method) -> ServerState:
    """The global state after two rounds, when there is something to broadcast besides weights."""
    return _two_rounds(method)


@functools.cache
def _two_rounds(method: Method) -> ServerState:
    return toy.play(method, list(CLIENTS.values()), rounds=2)


@functools.cache
def _third_round(method: Method, name: str) -> tuple[Update, Tensors]:
    """What a client returns in round 3, which several tests look at."""
    return run_client(method, toy.network(), _two_rounds(method), {}, CLIENTS[name], THIRD)


@functools.cache
def _used_network(method: Method) -> Network:
    used = toy.network()
    data, ctx = CLIENTS["all classes, some labels wrong"], RoundContext(2, toy.SEED, client=0)
    run_client(method, used, _two_rounds(method), {}, data, ctx)
    return used.eval()


@pytest.mark.parametrize("name", CLIENTS)
def test_the_same_inputs_give_the_same_bits_whatever_the_network_did_before(
    method: Method, later: ServerState, name: str
) -> None:
    used = copy.deepcopy(_used_network(method))
    found = run_client(method, used, later, {}, CLIENTS[name], THIRD)
    assert toy.bits(*found) == toy.bits(*_third_round(method, name))


def test_another_round_and_another_client_draw_other_batches(method: Method, later: ServerState) -> None:
    data = CLIENTS["all classes, some labels wrong"]
    updates = [toy.train(method, later, data, index, client) for index, client in [(3, 0), (4, 0), (3, 1)]]
    assert len({digest(update.model) for update in updates}) == 3


@pytest.mark.parametrize("data", CLIENTS.values(), ids=CLIENTS.keys())
def test_inputs_stay_as_they_were(method: Method, later: ServerState, data: ClientDataset) -> None:
    _, state = run_client(method, toy.network(), later, {}, data, RoundContext(2, toy.SEED, client=0))
    state = {"unknown": torch.arange(3.0), **state}
    before = copy.deepcopy((method, later, state, data))
    update, _ = run_client(method, toy.network(), later, state, data, RoundContext(3, toy.SEED, client=0))
    method.server_update(later, method.zero_update(later) + update, RoundContext(3, toy.SEED))
    assert method == before[0]
    assert digest(later.model, later.aux) == digest(before[1].model, before[1].aux)
    assert digest(state) == digest(before[2])
    assert all(torch.equal(getattr(data, name), getattr(before[3], name)) for name in ("pixels", "rows", "labels"))


@pytest.mark.parametrize("name", CLIENTS)
def test_a_zero_update_is_the_neutral_element_and_has_the_shapes_of_an_update(
    method: Method, later: ServerState, name: str
) -> None:
    zero, (update, _) = method.zero_update(later), _third_round(method, name)
    assert check_like(update.model, zero.model) is None
    assert check_like(update.aux, zero.aux) is None
    assert zero.weight == 0
    assert toy.bits(zero + update) == toy.bits(update)
    assert toy.bits(update + zero) == toy.bits(update)


def test_the_sum_of_two_updates_is_the_same_in_either_order(method: Method) -> None:
    left, right = (_third_round(method, name)[0] for name in list(CLIENTS)[:2])
    assert toy.bits(left + right) == toy.bits(right + left)


def test_the_server_averages_weights_and_running_statistics_by_the_clients_weights(
    method: Method, later: ServerState
) -> None:
    shards, total, local, weights = list(CLIENTS.values())[:3], method.zero_update(later), [], []
    for client, data in enumerate(shards):
        net = toy.network()
        update = toy.train(method, later, data, 3, client, net)
        total = total + update
        weights.append(update.weight)
        local.append({name: value.double().clone() for name, value in net.state_dict().items()})
    merged = method.server_update(later, total, RoundContext(3, toy.SEED)).model
    assert any(name.endswith("running_var") for name in merged)
    for name, value in merged.items():
        average = sum(weight / sum(weights) * own[name] for weight, own in zip(weights, local, strict=True))
        torch.testing.assert_close(value.double(), average, rtol=1e-5, atol=1e-6, msg=name)
        assert not torch.equal(value, later.model[name])


def test_only_what_can_be_averaged_is_global(method: Method) -> None:
    net = toy.network()
    begun = method.init(net)
    assert any(name.endswith("num_batches_tracked") for name in net.state_dict())
    assert begun.model.keys() == float_entries(net.state_dict()).keys()
    assert all(value.is_floating_point() for value in [*begun.model.values(), *begun.aux.values()])


def test_what_the_server_begins_with_is_a_copy(method: Method) -> None:
    net = toy.network()
    begun = method.init(net)
    before = digest(begun.model)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1)
    assert digest(begun.model) == before


def test_names_shapes_and_types_of_the_global_state_never_change(method: Method, later: ServerState) -> None:
    begun = method.init(toy.network())
    for now, then in [(later.model, begun.model), (later.aux, begun.aux)]:
        assert check_like(now, then) is None
        assert all(now[name].dtype == then[name].dtype for name in then)


@pytest.mark.parametrize("place", ["memory", "disk"])
def test_the_state_survives_storage_and_records(method: Method, place: str, tmp_path: Path) -> None:
    _, state = _third_round(method, "all classes, some labels wrong")
    store = ClientStateStore(tmp_path if place == "disk" else None)
    store.save(5, 3, state)
    assert digest(store.load(5)) == digest(state)
    assert digest(deserialize(serialize({"state": state}, {}))[0]["state"]) == digest(state)


def test_a_state_from_storage_trains_as_the_one_that_came_back(
    method: Method, later: ServerState, tmp_path: Path
) -> None:
    data, store = CLIENTS["all classes, some labels wrong"], ClientStateStore(tmp_path)
    _, state = _third_round(method, "all classes, some labels wrong")
    store.save(5, 3, state)
    stored = run_client(method, toy.network(), later, store.load(5), data, RoundContext(4, toy.SEED, client=5))
    kept = run_client(method, toy.network(), later, state, data, RoundContext(4, toy.SEED, client=5))
    assert toy.bits(*stored) == toy.bits(*kept)
    assert check_like(kept[1], kept[1]) is None  # finite


def test_names_shapes_and_types_of_a_state_never_change_once_it_is_full(method: Method, later: ServerState) -> None:
    data, states = CLIENTS["two classes are missing"], [{}]
    for index in range(1, 8):
        states.append(
            run_client(method, toy.network(), later, states[-1], data, RoundContext(index, toy.SEED, client=0))[1]
        )
    assert check_like(states[-1], states[-2]) is None


@pytest.mark.parametrize("name", ["mlp", "cnn9"])  # without and with running statistics and dropout
def test_awkward_clients_at_the_papers_learning_rate_never_give_nan(method: Method, name: str) -> None:
    net = toy.network(name, width=0.06)
    server_state, states = method.init(net), [{} for _ in CLIENTS]
    for index in range(1, 4):
        total = method.zero_update(server_state)
        for client, data in enumerate(CLIENTS.values()):
            ctx = RoundContext(index, toy.SEED, client)
            update, states[client] = run_client(method, net, server_state, states[client], data, ctx)
            assert check_like(update.model, total.model) is None
            assert check_like(update.aux, total.aux) is None
            assert np.isfinite(list(update.metrics.values())).all()
            assert 0 < update.weight <= len(data)
            assert update.weight == len(data) or isinstance(method, OWN_WEIGHTS)
            total = total + update
        server_state = method.server_update(server_state, total, RoundContext(index, toy.SEED))
    zero = method.zero_update(server_state)
    assert check_like(server_state.model, zero.model) is None


def _all_random_states() -> tuple[bytes, str, object]:
    return torch.get_rng_state().numpy().tobytes(), str(np.random.get_state()), random.getstate()  # noqa: NPY002


def test_a_client_neither_changes_nor_reads_the_callers_randomness(method: Method) -> None:
    net = toy.network("cnn9", width=0.06)  # with dropout
    server_state, ctx = method.init(net), RoundContext(1, toy.SEED, client=2)
    before = _all_random_states()
    first = run_client(method, net, server_state, {}, CLIENTS["two classes are missing"], ctx)
    assert _all_random_states() == before
    with torch.random.fork_rng(devices=[]):
        torch.rand(11)
        second = run_client(method, net, server_state, {}, CLIENTS["two classes are missing"], ctx)
    assert toy.bits(*first) == toy.bits(*second)


def test_a_client_that_raises_gives_the_callers_randomness_and_threads_back(method: Method) -> None:
    threads, before = torch.get_num_threads(), _all_random_states()
    with pytest.raises(ValueError, match="another network's"):
        run_client(
            method, toy.network("mlp"), method.init(toy.network()), {}, toy.client_data([0, 1]), RoundContext(1, 0, 0)
        )
    assert _all_random_states() == before
    assert torch.get_num_threads() == threads


def test_bits_do_not_depend_on_the_callers_threads(method: Method, later: ServerState) -> None:
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


# --- what all methods have in common, since all train by local SGD ---


@pytest.mark.parametrize("name", METHODS)
def test_the_learning_rate_falls_by_10_every_so_many_rounds(name: str) -> None:
    falling, steady = toy.build(name, lr=0.1, lr_decay_every=2), toy.build(name, lr=0.1, lr_decay_every=0)
    rounds = [RoundContext(index, toy.SEED) for index in range(1, 8)]
    assert [falling.learning_rate(ctx) for ctx in rounds] == pytest.approx([0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3, 1e-4])
    assert [steady.learning_rate(ctx) for ctx in rounds] == [0.1] * 7


@pytest.mark.parametrize("name", METHODS)
def test_a_client_trains_at_the_rate_of_its_round(name: str) -> None:
    falling = toy.build(name, lr=0.1, lr_decay_every=2)
    begun, data = falling.init(toy.network()), CLIENTS["all classes, some labels wrong"]
    for index in (2, 3):
        fixed = toy.build(name, lr=falling.learning_rate(RoundContext(index, toy.SEED)), lr_decay_every=0)
        found = toy.train(falling, begun, data, index)
        assert digest(found.model) == digest(toy.train(fixed, begun, data, index).model)
    assert digest(found.model) != digest(toy.train(replace(falling, lr_decay_every=0), begun, data, index).model)


@pytest.mark.parametrize("name", METHODS)
def test_the_centralized_form_trains_one_epoch_a_round(name: str) -> None:
    usual = toy.build(name, epochs=5)
    alone = usual.centralized()
    assert type(alone) is type(usual)
    changes = {"epochs": 1, "pseudo": "naive"} if isinstance(usual, Rofl) else {"epochs": 1}
    assert alone == replace(usual, **changes)
    assert alone.centralized() == alone


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_told_of_the_noise_asks_for_the_ratio_only_where_it_is_left_open(name: str) -> None:
    settled = toy.build(name, tau=0.1, lr=0.2)
    assert settled.with_noise_rate("symmetric", 0.4) == settled
    unsettled = {"rofl": {"tau": 0.4}, "coteaching": {"tau": 0.4}, "joint": {"lr": 0.03}}.get(name, {})
    assert METHODS[name]().with_noise_rate("pair", 0.4) == METHODS[name](**unsettled)


@pytest.mark.parametrize("name", ["rofl", "coteaching"])
def test_tau_known_must_be_replaced_before_training(name: str) -> None:
    open_ = toy.build(name, tau="known")
    begun = open_.init(toy.network())
    with pytest.raises(ValueError, match="tau"):
        toy.train(open_, begun, toy.client_data([0, 1]), 1)
    assert toy.train(open_.with_noise_rate("symmetric", 0.4), begun, toy.client_data([0, 1]), 1).weight == 2


def test_the_cautious_form_goes_on_from_the_methods_state_with_updates_of_the_same_shapes(
    method: Method, later: ServerState
) -> None:
    cautious, data = method.cautious(), CLIENTS["all classes, some labels wrong"]
    assert cautious.cautious() == cautious
    _, state = run_client(method, toy.network(), later, {}, data, RoundContext(3, toy.SEED, client=0))
    update, _ = run_client(cautious, toy.network(), later, state, data, RoundContext(4, toy.SEED, client=0))
    zero = method.zero_update(later)
    assert check_like(update.model, zero.model) is None
    assert check_like(update.aux, zero.aux) is None
    after = cautious.server_update(later, update, RoundContext(4, toy.SEED))
    assert check_like({**after.model, **after.aux}, {**later.model, **later.aux}) is None


@pytest.mark.parametrize("name", ["rofl", "rofl-plus", "selflearning"])
def test_the_cautious_form_learns_as_if_the_model_had_no_opinion(name: str) -> None:
    """Two server states that differ in nothing but what the model would say to itself give the same update."""
    method = toy.build(name, start=2)
    assert method.cautious() != method
    later, data = _two_rounds(method), CLIENTS["all classes, some labels wrong"]
    ctx = RoundContext(3, toy.SEED, client=0)
    plain = toy.build("plain", start=2)
    shared = {key: getattr(method, key) for key in ("lr", "momentum", "weight_decay", "batch", "epochs")}
    shared["lr_decay_every"] = method.lr_decay_every
    given, _ = run_client(replace(plain, **shared), toy.network(), ServerState(later.model), {}, data, ctx)
    careful, _ = run_client(method.cautious(), toy.network(), later, {}, data, ctx)
    bold, _ = run_client(method, toy.network(), later, {}, data, ctx)
    first = next(iter(given.model))
    torch.testing.assert_close(careful.model[first], given.model[first], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(bold.model[first], given.model[first], rtol=1e-4, atol=1e-6)
