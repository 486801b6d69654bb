"""rofl-plus: the memory, the belief that it deserves, and the way back to rofl."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.config.presets import preset
from rofl.core import losses
from rofl.core.tensors import digest
from rofl.methods import FedAvg, Rofl, RoflPlus, RoundContext
from rofl.methods.rofl_plus import deserved_belief, extend_history, needed_memory
from rofl.methods.weights import load_weights, model_weights
from rofl.simulation.client import run_client
from tests.methods import toy
from tests.naive import memory_update as naive

PLUS = RoflPlus(lr=0.1, batch=6, epochs=2, horizon=10)
OFF = RoflPlus(lr=0.1, batch=6, epochs=2, t_pl=2, memory=0.0, lambda_cen=1.0, lambda_e=0.8, tau=0.3)
CLIENTS = [toy.noisy(range(24)), toy.noisy(range(24, 48))]


def probabilities(classes: int) -> st.SearchStrategy[list[float]]:
    """Distributions over classes."""
    weights = st.lists(st.floats(0.01, 1.0), min_size=classes, max_size=classes)
    return weights.map(lambda values: [value / sum(values) for value in values])


def test_without_memory_it_is_rofl_bit_by_bit() -> None:
    rofl = Rofl(lr=0.1, batch=6, epochs=2, t_pl=2, tau=0.3)
    ours, paper = (toy.play(method.with_rounds(4), CLIENTS, rounds=4) for method in (OFF, rofl))
    assert digest(ours.model, ours.aux) == digest(paper.model, paper.aux)


@pytest.mark.parametrize("name", ["small", "mlp"])
@pytest.mark.parametrize("agreement", [0.0, 0.45, 0.9])
def test_a_client_does_what_its_slow_twin_does(name: str, agreement: float) -> None:
    net, ctx, data = toy.network(name, width=0.06), RoundContext(3, toy.SEED, client=0), toy.noisy(range(12))
    start = PLUS.init(net)
    start = replace(start, aux={**start.aux, "agreement": torch.tensor([agreement])})
    memory = torch.full((12, toy.CLASSES), 0.1)
    memory[:, 1] = 0.6
    slow_memory = memory.tolist()
    naive.memory_update(
        net,
        data.labels.tolist(),
        slow_memory,
        toy.drawn_epochs(PLUS, data, ctx),
        PLUS.memory * naive.belief(agreement, toy.CLASSES) * naive.need(agreement),
        lr=PLUS.lr,
        momentum=PLUS.momentum,
        weight_decay=PLUS.weight_decay,
        memory_momentum=PLUS.memory_momentum,
    )
    after = model_weights(net)
    load_weights(net, start.model)
    update, state = run_client(PLUS, net, start, {"memory": memory}, data, ctx)
    toy.assert_same_change(update.model, after, start.model, len(data))
    torch.testing.assert_close(state["memory"], torch.tensor(slow_memory), rtol=1e-3, atol=1e-3)
    net = toy.network(name, width=0.06).eval()
    with torch.no_grad():
        predicted = net(data.inputs(slice(None)))[0]
    agreed = int((predicted.argmax(dim=1) == data.labels).sum())
    assert update.aux["agreement"].tolist() == [agreed, 12]
    torch.testing.assert_close(state["history"], predicted.softmax(dim=1))  # before training, images as they are


@given(probabilities(3), probabilities(3))
def test_the_memory_term(p: list[float], memory: list[float]) -> None:
    found = losses.memory(torch.tensor([p]), torch.tensor([memory]))
    assert float(found) == pytest.approx(naive.memory_term(p, memory), abs=1e-4)
    assert float(found) <= 0


def test_the_memory_term_is_finite_where_model_and_memory_are_certain() -> None:
    certain = torch.tensor([[1.0, 0.0]], requires_grad=True)
    term = losses.memory(certain, torch.tensor([[1.0, 0.0]]))
    term.backward()
    assert torch.isfinite(term).all()
    assert certain.grad is not None
    assert torch.isfinite(certain.grad).all()


@given(st.floats(0, 1), st.floats(0, 1), st.integers(2, 100))
def test_belief_grows_with_agreement_and_is_none_at_chance(low: float, high: float, classes: int) -> None:
    low, high = sorted((low, high))
    assert 0 <= deserved_belief(low, classes) <= deserved_belief(high, classes) <= 1
    assert deserved_belief(low, classes) == pytest.approx(naive.belief(low, classes), abs=1e-9)
    assert deserved_belief(1 / classes, classes) == pytest.approx(0)
    assert deserved_belief(1.0, classes) == 1


@given(st.floats(0, 1))
def test_no_memory_is_needed_where_all_labels_agree(agreement: float) -> None:
    assert needed_memory(agreement) == pytest.approx(naive.need(agreement), abs=1e-9)
    assert needed_memory(1.0) == 0


def test_a_model_that_knows_nothing_is_not_believed_and_learns_as_fedavg_does() -> None:
    plain = FedAvg(lr=0.1, batch=6, epochs=2)
    start = PLUS.init(toy.network())
    ours, theirs = (toy.train(method, start, CLIENTS[0], 1) for method in (PLUS, plain))
    for name, value in theirs.model.items():
        torch.testing.assert_close(ours.model[name], value, rtol=1e-4, atol=1e-4)


def test_the_history_is_a_moving_average() -> None:
    first, second = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 2.0]])
    history = extend_history({}, first)
    torch.testing.assert_close(history, first.softmax(dim=1))
    expected = 0.9 * first.softmax(dim=1) + 0.1 * second.softmax(dim=1)
    torch.testing.assert_close(extend_history({"history": history}, second), expected)


@pytest.mark.parametrize(("index", "agreement", "step"), [(1, 1.0, 1.0), (3, 1.0, 1.0), (10, 1.0, 0.3), (10, 0.1, 1.0)])
def test_the_servers_step_shrinks_towards_the_end_where_the_model_is_believed(
    index: int, agreement: float, step: float
) -> None:
    start = PLUS.init(toy.network())
    start = replace(start, aux={**start.aux, "agreement": torch.tensor([agreement])})
    update = toy.train(PLUS, start, CLIENTS[0], index)
    after = PLUS.server_update(start, update, RoundContext(index, toy.SEED))
    for name, value in start.model.items():
        torch.testing.assert_close(after.model[name], value + step * update.model[name] / update.weight)


def test_the_experiment_says_how_many_rounds_there_are() -> None:
    method = preset("digits", method="rofl-plus", rounds=12).build_method()
    assert isinstance(method, RoflPlus)
    assert method.horizon == 12
    assert method.with_rounds(99).horizon == 12


def test_it_keeps_learning_and_resists_where_a_third_of_the_labels_is_wrong() -> None:
    """Over many epochs plain FedAvg learns wrong labels by heart; the memory keeps most of them out."""
    images, classes = toy.pixels()
    wrong = {}
    for name, method in {"plus": PLUS, "plain": FedAvg(lr=0.1, batch=6, epochs=2)}.items():
        net = toy.network(width=0.5)
        state = toy.play(replace(method, epochs=5), CLIENTS, rounds=12, net=net)
        load_weights(net, state.model)
        with torch.no_grad():
            predicted = net.eval()(toy.TRANSFORM(images))[0].argmax(dim=1)
        mislabelled = torch.cat([data.rows[data.labels != classes[data.rows]] for data in CLIENTS])
        given_labels = torch.cat([data.labels[data.labels != classes[data.rows]] for data in CLIENTS])
        wrong[name] = int((predicted[mislabelled] == given_labels).sum())
    assert wrong["plus"] < wrong["plain"]
