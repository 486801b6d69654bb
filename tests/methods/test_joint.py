"""Joint Optimization: weights and labels in turn; the labels stay with the client."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, digest
from rofl.data import ClientDataset, batches
from rofl.methods import FedAvg, Joint, RoundContext, ServerState, Update
from rofl.methods.joint import published_rate
from rofl.methods.weights import load_weights, model_weights
from rofl.models import Network
from rofl.simulation.client import run_client
from tests.methods import toy
from tests.naive import equations, joint

START = 4
METHOD = Joint(lr=0.1, batch=8, epochs=2, start=START, memory=3)
ONE_STEP = replace(METHOD, batch=24, epochs=1, momentum=0.0, weight_decay=0.0)
DATA = toy.noisy(range(24))


@pytest.fixture(scope="module")
def server_state() -> ServerState:
    """After two rounds."""
    return toy.play(METHOD, [DATA, toy.noisy(range(24, 48))], rounds=2)


def train(
    method: Joint,
    server_state: ServerState,
    state: Tensors | None = None,
    index: int = START,
    data: ClientDataset = DATA,
) -> tuple[Update, Tensors]:
    return run_client(method, toy.network(), server_state, state or {}, data, RoundContext(index, toy.SEED, client=0))


def loaded(tensors: Tensors, name: str = "small", width: float = 0.25) -> Network:
    net = toy.network(name, width)
    load_weights(net, tensors)
    return net


def one_hot(data: ClientDataset = DATA) -> Tensor:
    return torch.tensor([equations.one_hot(label, toy.CLASSES) for label in data.labels.tolist()])


def gradients(server_state: ServerState, term: Any, index: int = START) -> Tensors:
    """Of a function of the logits and the row order, at the first step of a round whose batch is the whole shard."""
    net, ctx = loaded(server_state.model).train(), RoundContext(index, toy.SEED, client=0)
    order = next(batches(len(DATA), len(DATA), ctx.rng("batches")))
    logits, _ = net(DATA.inputs(order, ctx.rng("augment")))
    term(logits.softmax(dim=1), order).backward()
    return {name: parameter.grad for name, parameter in net.named_parameters()}


# --- Algorithm 1 ---


@pytest.mark.parametrize("name", ["small", "mlp"])
@pytest.mark.parametrize("index", [1, START - 1, START])
def test_two_participations_in_a_row_do_what_algorithm_1_says(name: str, index: int) -> None:
    """Before the start, over it, and after it: weights, labels and collected predictions."""
    width, data = 0.06, toy.noisy(range(14))
    method = replace(METHOD, batch=6)
    server_state = method.init(toy.network(name, width))
    labels, past, state = one_hot(data).tolist(), [], {}
    for t in (index, index + 1):
        ctx = RoundContext(t, toy.SEED, client=0)
        epochs = toy.drawn_epochs(method, data, ctx)
        net = loaded(server_state.model, name, width)
        labels, past = joint.joint_optimization(
            net,
            labels,
            past,
            epochs,
            t,
            lr=method.lr,
            momentum=method.momentum,
            weight_decay=method.weight_decay,
            alpha=method.alpha,
            beta=method.beta,
            start=method.start,
            memory=method.memory,
        )
        update, state = run_client(method, toy.network(name, width), server_state, state, data, ctx)
        toy.assert_same_change(update.model, model_weights(net), server_state.model, len(data))
        torch.testing.assert_close(state["labels"], torch.tensor(labels), rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(state["past"], torch.tensor(past), rtol=1e-3, atol=1e-4)
        server_state = method.server_update(
            server_state, method.zero_update(server_state) + update, RoundContext(t, toy.SEED)
        )
    assert torch.equal(state["labels"], one_hot(data)) == (index + 1 < START)


# --- the three terms ---


@pytest.mark.parametrize("off", [{"alpha": 0.0}, {"beta": 0.0}])
def test_each_weighted_term_moves_the_whole_network(server_state: ServerState, off: dict[str, float]) -> None:
    with_it, without = train(METHOD, server_state)[0].model, train(replace(METHOD, **off), server_state)[0].model
    assert not torch.equal(with_it["extractor.0.weight"], without["extractor.0.weight"])
    assert not torch.equal(with_it["classifier.weight"], without["classifier.weight"])


def _prior(s: Tensor, order: Tensor) -> Tensor:
    return sum(1 / toy.CLASSES * (1 / toy.CLASSES / s[:, c].mean()).log() for c in range(toy.CLASSES))


def _entropy(s: Tensor, order: Tensor) -> Tensor:
    return -(s * s.log()).sum() / len(s)


@pytest.mark.parametrize(("name", "term"), [("alpha", _prior), ("beta", _entropy)])
def test_a_weight_adds_so_much_of_its_terms_gradient(server_state: ServerState, name: str, term: Any) -> None:
    bare = replace(ONE_STEP, alpha=0.0, beta=0.0)
    alone, both = train(bare, server_state)[0].model, train(replace(bare, **{name: 0.7}), server_state)[0].model
    for key, gradient in gradients(server_state, term).items():
        expected = -bare.lr * 0.7 * len(DATA) * gradient
        torch.testing.assert_close(both[key] - alone[key], expected, rtol=1e-3, atol=1e-4)


def test_l_c_pulls_towards_the_labels_of_the_state(server_state: ServerState) -> None:
    bare = replace(ONE_STEP, alpha=0.0, beta=0.0)
    soft = torch.tensor([equations.softmax([float((row * 7 + c) % 5) for c in range(4)]) for row in range(len(DATA))])
    state = {"labels": soft, "past": torch.empty(0, len(DATA), toy.CLASSES)}
    found = train(bare, server_state, state)[0].model
    expected = gradients(server_state, lambda s, order: (soft[order] * (soft[order] / s).log()).sum() / len(s))
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], -bare.lr * len(DATA) * gradient, rtol=1e-3, atol=1e-4)


def test_with_the_given_labels_and_no_other_term_it_is_plain_fedavg(server_state: ServerState) -> None:
    bare = replace(METHOD, alpha=0.0, beta=0.0, start=START + 1)
    plain = toy.train(FedAvg(lr=METHOD.lr, batch=METHOD.batch, epochs=METHOD.epochs), server_state, DATA, START)
    found, _ = train(bare, server_state)
    for name, value in plain.model.items():
        torch.testing.assert_close(found.model[name], value, rtol=1e-3, atol=1e-4)


def test_the_reported_loss_is_the_sum_of_its_weighted_terms(server_state: ServerState) -> None:
    metrics = train(replace(METHOD, alpha=0.7, beta=0.3), server_state)[0].metrics
    total = metrics["loss_c"] + 0.7 * metrics["loss_p"] + 0.3 * metrics["loss_e"]
    assert metrics["loss"] == pytest.approx(total, rel=1e-4)
    assert min(metrics["loss_c"], metrics["loss_p"], metrics["loss_e"]) > 0
    assert metrics["samples"] == len(DATA) * METHOD.epochs


# --- labels ---


def test_labels_are_as_given_before_the_start(server_state: ServerState) -> None:
    state: Tensors = {}
    for index in range(1, START):
        _, state = train(METHOD, server_state, state, index)
        assert torch.equal(state["labels"], one_hot())


@pytest.mark.parametrize("data", toy.clients().values(), ids=toy.clients())
def test_labels_are_distributions_from_the_start_on(server_state: ServerState, data: ClientDataset) -> None:
    state: Tensors = {}
    for index in (START, START + 1):
        _, state = train(METHOD, server_state, state, index, data)
        labels = state["labels"]
        assert labels.shape == (len(data), toy.CLASSES)
        assert (labels > 0).all()
        assert (labels < 1).all()
        torch.testing.assert_close(labels.sum(dim=1), torch.ones(len(data)))
        torch.testing.assert_close(labels, state["past"].mean(dim=0))


def test_predictions_of_rounds_before_the_start_count_too(server_state: ServerState) -> None:
    _, before = train(METHOD, server_state, index=START - 1)
    _, after = train(replace(METHOD, epochs=1), server_state, before)
    assert torch.equal(after["past"][:2], before["past"])
    torch.testing.assert_close(after["labels"], (before["past"].sum(dim=0) + after["past"][2]) / 3)


@pytest.mark.parametrize("memory", [1, 2, 3, 9])
def test_no_more_epochs_are_kept_than_memory_says_and_they_are_the_newest(
    server_state: ServerState, memory: int
) -> None:
    method = replace(METHOD, memory=memory, start=99)
    state, all_of_it = {}, {}
    for index in (1, 2, 3):
        _, state = train(method, server_state, state, index)
        _, all_of_it = train(replace(method, memory=99), server_state, all_of_it, index)
    assert len(all_of_it["past"]) == 3 * METHOD.epochs
    assert torch.equal(state["past"], all_of_it["past"][-memory:])


def test_with_a_memory_of_one_the_labels_are_the_last_epochs_predictions(server_state: ServerState) -> None:
    _, state = train(replace(METHOD, memory=1), server_state)
    assert state["past"].shape == (1, len(DATA), toy.CLASSES)
    assert torch.equal(state["labels"], state["past"][0])


def test_labels_are_renewed_after_every_epoch_and_used_in_the_next(server_state: ServerState) -> None:
    """In the first epoch of the start round the given labels are still at work, in the second no more."""
    late = replace(METHOD, start=START + 1)
    one = [train(replace(method, epochs=1), server_state)[0] for method in (METHOD, late)]
    two = [train(method, server_state)[0] for method in (METHOD, late)]
    assert digest(one[0].model) == digest(one[1].model)
    assert digest(two[0].model) != digest(two[1].model)


def test_the_state_is_used_and_stays_with_the_client(server_state: ServerState) -> None:
    _, state = train(METHOD, server_state)
    before = digest(state)
    again, _ = train(METHOD, server_state, state, START + 1)
    fresh, _ = train(METHOD, server_state, None, START + 1)
    assert digest(again.model) != digest(fresh.model)
    assert digest(state) == before
    assert again.model.keys() == server_state.model.keys()
    assert again.aux == {}
    assert (
        METHOD.server_update(
            server_state, METHOD.zero_update(server_state) + again, RoundContext(START + 1, toy.SEED)
        ).aux
        == {}
    )


def test_labels_that_the_received_model_knows_better_are_mended() -> None:
    others = toy.play(FedAvg(lr=0.05, batch=8, epochs=2), [toy.client_data(range(24, 96))], rounds=6)
    truth, state = toy.client_data(range(24)).labels, {}
    for index in (START, START + 1):
        _, state = train(replace(METHOD, lr=0.01), others, state, index)
    assert int((DATA.labels != truth).sum()) >= 5
    assert int((state["labels"].argmax(dim=1) != truth).sum()) <= 1


# --- the learning rate ---


def test_a_learning_rate_of_zero_is_refused_in_training_and_filled_in_before_it(server_state: ServerState) -> None:
    with pytest.raises(ValueError, match="lr"):
        train(replace(METHOD, lr=0.0), server_state)
    assert replace(METHOD, lr=0.0).with_noise_rate("symmetric", 0.7) == replace(METHOD, lr=0.08)
    assert replace(METHOD, lr=0.5).with_noise_rate("symmetric", 0.7) == replace(METHOD, lr=0.5)
    assert Joint().with_noise_rate("pair", 0.4).lr == 0.03


@pytest.mark.parametrize(
    ("ratio", "rate"), [(0.0, 0.01), (0.1, 0.02), (0.3, 0.03), (0.5, 0.04), (0.7, 0.08), (0.9, 0.12)]
)
def test_rates_for_symmetric_noise_are_tanakas(ratio: float, rate: float) -> None:
    assert published_rate("symmetric", ratio) == pytest.approx(rate)


def test_rates_for_symmetric_noise_rise_with_the_ratio_and_never_jump() -> None:
    rates = [published_rate("symmetric", step / 200) for step in range(201)]
    assert rates == sorted(rates)
    assert max(after - before for before, after in itertools.pairwise(rates)) < 0.002
    assert rates[0] == 0.01
    assert rates[-1] == 0.12
    assert published_rate("symmetric", 0.2) == pytest.approx(0.025)


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.45])
def test_the_rate_for_pair_noise_is_one_for_all_ratios(ratio: float) -> None:
    assert published_rate("pair", ratio) == 0.03


def test_no_noise_is_no_noise_of_either_kind() -> None:
    assert published_rate("pair", 0.0) == published_rate("symmetric", 0.0)
