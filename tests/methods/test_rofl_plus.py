"""rofl-plus: corrected labels, the noise model behind them, the memory, and the way back to rofl."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rofl.config.presets import preset
from rofl.core import losses, noise, noise_fit
from rofl.core.centroids import has_centroid
from rofl.core.held_out_fit import HeldOutEstimate
from rofl.core.noise_posterior import is_pattern, noise_pattern, sharpen
from rofl.core.tensors import digest
from rofl.data import ClientDataset
from rofl.methods import FedAvg, Rofl, RoflPlus, RoundContext, ServerState
from rofl.methods.base import Claims
from rofl.methods.noise_model import (
    JUDGES,
    NoiseModel,
    deserved_belief,
    learnt_by_heart,
    scale_rate,
    sharpening_power,
)
from rofl.methods.rofl_plus import prior_shift, without_client
from rofl.methods.weights import load_weights, model_weights
from rofl.simulation.client import run_client
from tests.methods import toy
from tests.naive import equations as eq
from tests.naive import held_out
from tests.naive import memory_update as naive

PLUS = RoflPlus(lr=0.1, batch=6, epochs=2, horizon=10)
OFF = RoflPlus(lr=0.1, batch=6, epochs=2, t_pl=2, correct=False, memory=0.0, lambda_cen=1.0, lambda_e=0.8, tau=0.3)
CLIENTS = [toy.noisy(range(24)), toy.noisy(range(24, 48))]


def believed(
    state: ServerState,
    temperature: float = 1.0,
    belief: float = 0.5,
    gap: float = 0.1,
    rate: float = 0.3,
    accuracy: float = 0.5,
    judge: int = 0,
    held_out: tuple[float, float] = (-1.0, 0.0),
    trust: float = 1.0,
) -> ServerState:
    """The state with a noise model of this temperature, belief, gap, highest rate, accuracy, judge, held-out rate."""
    numbers = torch.tensor([temperature, belief, gap, 48.0, rate, rate, accuracy, judge, *held_out, trust])
    model = replace(NoiseModel.initial(toy.CLASSES), numbers=numbers)
    return replace(state, aux=state.aux | model.tensors())


def with_centroids(state: ServerState) -> ServerState:
    """The state with centroids that point anywhere."""
    shape = state.aux["centroids"].shape
    return replace(state, aux=state.aux | {"centroids": torch.randn(shape, generator=torch.Generator().manual_seed(4))})


def evidence(model: NoiseModel, judges: list[torch.Tensor], labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """All sums of one client whose training changes no prediction."""
    agreed = float((judges[0].argmax(dim=1) == labels).sum())
    classes = judges[0].shape[1]
    return {
        **NoiseModel.zero_sums(classes),
        **model.evidence(judges, labels),
        "fit/labels": labels.bincount(minlength=classes).float(),
        "fit/agreement": torch.tensor([agreed, len(labels), agreed, len(labels)]),
    }


def distributions(classes: int) -> st.SearchStrategy[list[float]]:
    """Distributions over classes."""
    weights = st.lists(st.floats(0.01, 1.0), min_size=classes, max_size=classes)
    return weights.map(lambda values: [value / sum(values) for value in values])


def test_without_corrections_and_memory_it_is_rofl_bit_by_bit() -> None:
    rofl = Rofl(lr=0.1, batch=6, epochs=2, t_pl=2, tau=0.3)
    ours, paper = (toy.play(method.with_rounds(4), CLIENTS, rounds=4) for method in (OFF, rofl))
    assert digest(ours.model, ours.aux) == digest(paper.model, paper.aux)


@pytest.mark.parametrize("name", ["small", "mlp"])
@pytest.mark.parametrize(
    ("belief", "gap", "accuracy", "index"),
    [(0.0, 0.0, 0.3, 3), (0.7, 0.0, 0.5, 4), (1.0, 0.4, 1.0, 3), (1.0, 0.4, 1.0, 4)],
)
def test_a_client_does_what_its_slow_twin_does(
    name: str, belief: float, gap: float, accuracy: float, index: int
) -> None:
    net, ctx, data = toy.network(name, width=0.06), RoundContext(index, toy.SEED, client=0), toy.noisy(range(12))
    start = believed(PLUS.init(net), temperature=1.4, belief=belief, gap=gap, accuracy=accuracy)
    power = naive.power_of_labels(accuracy, toy.CLASSES, PLUS.sharpness)
    labels = data.labels.tolist()
    with torch.no_grad():
        judged = net.eval()(data.inputs(slice(None)))[0].log_softmax(dim=1)  # no part of its own in the first round
    past = torch.full((12, toy.CLASSES), math.log(0.1))
    past[:, 2] = math.log(0.7)
    history = (0.5 * judged + 0.5 * past).tolist()
    matrix = noise.symmetric(toy.CLASSES, 0.3).tolist()  # at the highest rate so far
    targets = []
    for log_p, label in zip(history, labels, strict=True):
        posterior = naive.sharpened(naive.class_posterior(log_p, label, 1.4, matrix), power)
        targets.append([(1 - belief) * (k == label) + belief * p for k, p in enumerate(posterior)])
    memory = torch.full((12, toy.CLASSES), 0.1)
    memory[:, 1] = 0.6
    slow_memory = memory.tolist()
    naive.memory_update(
        net,
        targets,
        slow_memory,
        toy.drawn_epochs(PLUS, data, ctx),
        PLUS.memory * gap if index >= 4 else 0.0,  # in the first three rounds nothing resists
        lr=PLUS.lr,
        momentum=PLUS.momentum,
        weight_decay=PLUS.weight_decay,
        memory_momentum=PLUS.memory_momentum,
    )
    after = model_weights(net)
    load_weights(net, start.model)
    update, state = run_client(PLUS, net, start, {"memory": memory, "history": past}, data, ctx)
    toy.assert_same_change(update.model, after, start.model, len(data))
    torch.testing.assert_close(state["memory"], torch.tensor(slow_memory), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(state["history"], torch.tensor(history), rtol=1e-4, atol=1e-4)
    agreed = int((judged.argmax(dim=1) == data.labels).sum())
    assert update.aux["fit/agreement"].tolist()[:2] == [agreed, 12]
    assert update.aux["fit/labels"].tolist() == data.class_counts().tolist()


@given(st.lists(st.tuples(distributions(3), st.integers(0, 2)), min_size=1, max_size=5), st.floats(0.01, 0.6))
def test_likelihoods_and_posteriors_are_those_of_the_slow_twin(
    samples: list[tuple[list[float], int]], rate: float
) -> None:
    log_probs = torch.tensor([p for p, _ in samples]).log()
    labels = torch.tensor([label for _, label in samples])
    matrix = noise.symmetric(3, rate)
    slow = [
        sum(
            math.log(naive.likelihood(row, label, each, matrix.tolist()))
            for row, label in zip(log_probs.tolist(), labels.tolist(), strict=True)
        )
        for each in noise_fit.TEMPERATURES
    ]
    p = noise_fit.at_all_temperatures(log_probs)
    assert noise_fit.temperature_likelihoods(p, labels, matrix).tolist() == pytest.approx(slow, rel=1e-4)
    for family in (noise.symmetric, noise.pair):
        both = noise_fit.rate_likelihoods(p, labels, 2 * family(3, 0.5).fill_diagonal_(0))
        for place, known in enumerate(noise_fit.RATES):
            column = noise_fit.temperature_likelihoods(p, labels, family(3, known))
            torch.testing.assert_close(both[:, place], column)
    confident = [sum(max(naive.softened(row, each)) for row in log_probs.tolist()) for each in noise_fit.TEMPERATURES]
    assert noise_fit.confidences(p).tolist() == pytest.approx(confident, rel=1e-4)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), st.randoms())
def test_the_global_model_without_a_client_is_the_mean_of_the_others(counts: list[int], random: object) -> None:
    weights = [[random.uniform(-2, 2) for _ in range(3)] for _ in counts]  # type: ignore[attr-defined]
    total = sum(counts)
    mean = [sum(n * w[i] for n, w in zip(counts, weights, strict=True)) / total for i in range(3)]
    found = without_client({"w": torch.tensor(mean)}, {"w": torch.tensor(weights[0])}, counts[0] / total)
    assert found["w"].tolist() == pytest.approx(naive.others_mean(weights, counts, 0), abs=1e-3)


def test_a_variance_stays_above_zero_without_a_client() -> None:
    found = without_client({"bn.running_var": torch.tensor([1.0])}, {"bn.running_var": torch.tensor([9.0])}, 0.5)
    assert float(found["bn.running_var"]) > 0


def test_a_client_is_judged_without_its_own_part_in_the_model_after_a_round_it_took_part_in() -> None:
    """The second round's evidence differs by what the client taught the model in the first, and only then."""
    state = toy.play(PLUS, CLIENTS, rounds=1)
    net, data = toy.network(), CLIENTS[0]
    _, kept = run_client(PLUS, net, PLUS.init(toy.network()), {}, data, RoundContext(1, toy.SEED, client=0))
    second, third = RoundContext(2, toy.SEED, client=0), RoundContext(3, toy.SEED, client=0)
    judged = [
        run_client(method, net, state, dict(client_state), data, ctx)[1]["history"]
        for method, client_state, ctx in [
            (PLUS, kept, second),
            (PLUS, {}, second),
            (replace(PLUS, leave_one_out=False), kept, second),
            (PLUS, kept, third),
        ]
    ]
    assert not torch.equal(judged[0], judged[1])
    assert torch.equal(judged[1], judged[2])
    assert torch.equal(judged[1], judged[3])  # it paused for a round


@given(distributions(3), distributions(3))
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


@given(st.floats(0, 1), st.floats(0, 1), st.integers(2, 100), st.floats(0, 0.7))
def test_belief_grows_with_accuracy_and_is_none_at_chance(low: float, high: float, classes: int, rate: float) -> None:
    low, high = sorted((low, high))
    assert 0 <= deserved_belief(low, classes, rate) <= deserved_belief(high, classes, rate) <= 1
    assert deserved_belief(low, classes, rate) == pytest.approx(naive.belief(low, classes, rate), abs=1e-9)
    assert deserved_belief(1 / classes, classes, rate) == pytest.approx(0)
    assert deserved_belief(1.0, classes, rate) == 1


@given(st.floats(0, 1), st.floats(0, 0.7), st.floats(0, 0.7))
def test_the_same_model_is_believed_more_if_more_labels_are_wrong(accuracy: float, rate: float, other: float) -> None:
    fewer, more = sorted((rate, other))
    assert deserved_belief(accuracy, 10, fewer) <= deserved_belief(accuracy, 10, more)
    assert deserved_belief(accuracy, 10, 0.0) == deserved_belief(accuracy, 10, min(fewer, 0.39))


@given(st.floats(0, 1), st.floats(0, 1))
def test_learning_by_heart_is_what_training_gains(before: float, after: float) -> None:
    assert learnt_by_heart(before, after) == pytest.approx(naive.by_heart(before, after), abs=1e-9)
    assert learnt_by_heart(before, before) == 0
    assert learnt_by_heart(1.0, 1.0) == 0


@given(st.floats(0.01, 0.75), st.floats(0, 0.7))
def test_another_rate_keeps_the_pattern_of_the_noise(rate: float, other: float) -> None:
    matrix = noise.pair(4, rate)
    scaled = scale_rate(matrix, other)
    torch.testing.assert_close(scaled.sum(dim=1), torch.ones(4, dtype=torch.float64))
    assert float(1 - scaled.diagonal().mean()) == pytest.approx(other, abs=1e-6)
    assert bool((scaled[matrix == 0] == 0).all())


@given(st.floats(0, 0.7), st.floats(0, 0.2), st.floats(0, 1), st.floats(0.05, 0.5), st.floats(0, 1))
def test_held_out_labels_decide_how_many_labels_are_wrong(
    rate: float, deviation: float, belief: float, highest: float, trust: float
) -> None:
    """Whatever was found on training labels; a fall of agreement, or a rate that may be 0, prevents corrections."""
    state = believed(PLUS.init(toy.network()), belief=belief, rate=highest, gap=0.5)
    before = NoiseModel.read(state.aux)
    found = NoiseModel.read(PLUS.with_held_out(state, HeldOutEstimate(rate, deviation, trust)).aux)
    belief *= trust
    sure = max(0.0, rate - deviation)
    assert before.rate >= highest - 1e-6
    assert found.rate == pytest.approx(rate, abs=1e-6)
    assert found.correction == pytest.approx(belief * min(1.0, sure / 0.1), abs=1e-5)
    assert found.settled == found.correction
    assert before.settled == before.belief
    assert float(1 - found.noise_matrix.diagonal().mean()) == pytest.approx(max(rate, 1e-3), abs=1e-5)
    resisted = min(1.0, max(0.0, (sure - 0.1) / 0.1))
    assert found.resistance == pytest.approx(0.5 * (1 - belief * (1 - resisted)), abs=1e-5)


def test_the_rate_of_held_out_labels_stays_when_training_labels_are_memorized() -> None:
    """Sums over labels that all agree with the model change the fitted rate, and not the one of held-out labels."""
    state = PLUS.with_held_out(believed(ServerState({}, {}), belief=1.0, rate=0.3), HeldOutEstimate(0.25, 0.02, 1.0))
    model = NoiseModel.read(state.aux)
    log_probs = torch.eye(toy.CLASSES).repeat(12, 1).mul(0.97).add(0.01).log().log_softmax(dim=1)
    labels = torch.arange(toy.CLASSES).repeat(12)
    after = model.updated(evidence(model, [log_probs] * len(JUDGES), labels), len(labels))
    assert float(after.numbers[4]) < 0.2  # of training labels
    assert after.rate == 0.25


def test_without_corrections_held_out_labels_are_not_asked_for() -> None:
    state = OFF.init(toy.network())
    assert OFF.held_out_pattern(state) is None
    assert OFF.with_held_out(state, HeldOutEstimate(0.3, 0.1, 1.0)) is state
    pattern = PLUS.held_out_pattern(PLUS.init(toy.network()))
    assert pattern is not None
    assert is_pattern(pattern)


@given(st.floats(0.05, 0.45), st.integers(3, 6))
def test_the_pattern_of_pair_noise_is_found_whatever_its_rate(rate: float, classes: int) -> None:
    pattern = noise_pattern((1000 * noise.pair(classes, rate)).round())
    torch.testing.assert_close(pattern.sum(dim=1), torch.ones(classes, dtype=torch.float64))
    assert bool((pattern.diagonal() == 0).all())
    assert float(pattern[0, 1]) > 0.9


@pytest.mark.parametrize("chunk", [1, 40 * 13])
def test_the_evidence_is_the_same_in_pieces(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many samples only some at a time are looked at, so that memory stays small."""
    rng = torch.Generator().manual_seed(2)
    judges = [torch.randn(50, 4, generator=rng).log_softmax(dim=1) for _ in JUDGES]
    labels = torch.randint(4, (50,), generator=rng)
    whole = NoiseModel.initial(4).evidence(judges, labels)
    monkeypatch.setattr("rofl.methods.noise_model._CHUNK", chunk)
    for name, value in NoiseModel.initial(4).evidence(judges, labels).items():
        torch.testing.assert_close(value, whole[name])
    assert float(whole["fit/counts"].sum()) == pytest.approx(50, rel=1e-5)
    assert float(whole["fit/confusion"].sum()) == 50


def test_without_a_wrong_label_the_pattern_is_that_of_symmetric_noise() -> None:
    torch.testing.assert_close(noise_pattern(torch.eye(3)), torch.full((3, 3), 0.5).fill_diagonal_(0).double())


@settings(deadline=None, max_examples=20)
@given(st.integers(5, 60), st.integers(2, 4), st.integers(0, 2**16))
def test_the_rate_of_training_labels_is_that_of_the_slow_twin(samples: int, classes: int, seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    log_probs = (3 * torch.randn(samples, classes, generator=rng)).log_softmax(dim=1)
    labels = torch.randint(classes, (samples,), generator=rng)
    pattern = torch.full((classes, classes), 1 / (classes - 1)).fill_diagonal_(0)
    tempered = noise_fit.at_all_temperatures(log_probs)
    likelihoods = noise_fit.rate_likelihoods(tempered, labels, pattern)
    sure = noise_fit.sure_samples(tempered)
    doubt = 30 * min(1.0, samples / 400)
    found = noise_fit.expected_rate(likelihoods, sure, samples, doubt)
    temperatures, rates = list(noise_fit.TEMPERATURES), list(noise_fit.RATES)
    slow_sure = [held_out.sure_samples(log_probs.exp().tolist(), temperature) for temperature in temperatures]
    assert sure.tolist() == pytest.approx(slow_sure, abs=1e-4)
    priors = held_out.prior(likelihoods.tolist(), slow_sure, temperatures, samples, most=30, many=400)
    assert found[0] == pytest.approx(held_out.mean_rate(likelihoods.tolist(), priors, rates), abs=1e-4)
    assert found[1] == pytest.approx(held_out.rate_deviation(likelihoods.tolist(), priors, rates), abs=1e-4)


@pytest.mark.parametrize("unsure", [False, True])
def test_the_fitted_rate_of_a_round_is_that_of_the_slow_twin(unsure: bool) -> None:
    """With the doubt of training labels, which is full from 400 samples on; half of it counts in the next round."""
    rng = torch.Generator().manual_seed(9)
    classes, samples = 4, 480
    truth = torch.randint(classes, (samples,), generator=rng)
    drawn = torch.randint(classes, (samples,), generator=rng)
    labels = torch.where(torch.rand(samples, generator=rng) < 0.5, truth, drawn) if unsure else truth
    logits = torch.nn.functional.one_hot(truth, classes) * (1.6 if unsure else 5.0)
    log_probs = (logits + 0.05 * torch.randn(samples, classes, generator=rng)).log_softmax(dim=1)
    model = NoiseModel.initial(classes)
    sums = evidence(model, [log_probs] * len(JUDGES), labels)
    temperatures, rates = list(noise_fit.TEMPERATURES), list(noise_fit.RATES)
    sure = [held_out.sure_samples(log_probs.exp().tolist(), temperature) for temperature in temperatures]
    likelihoods = sums["fit/rate"][0].tolist()
    priors = held_out.prior(likelihoods, sure, temperatures, samples, most=30, many=400)
    expected = held_out.mean_rate(likelihoods, priors, rates)
    after = model.updated(sums, samples)
    assert float(after.numbers[4]) == pytest.approx(expected, abs=1e-3)
    flat = [1.0] * len(temperatures)
    assert (held_out.mean_rate(likelihoods, flat, rates) < expected - 0.02) == unsure  # the prior matters


def test_a_high_rate_is_found_if_a_model_is_unsure_because_of_wrong_labels_and_none_if_all_are_right() -> None:
    labels = torch.arange(1000) % 5
    noisy = torch.where(torch.arange(1000) % 2 == 0, labels, torch.arange(1000) // 5 % 5)  # half of them are drawn
    pattern = torch.full((5, 5), 0.25).fill_diagonal_(0)
    rates = []
    for certainty, given_labels in ((0.92, labels), (0.5, noisy)):
        probabilities = torch.full((1000, 5), (1 - certainty) / 4).scatter(1, labels[:, None], certainty)
        tempered = noise_fit.at_all_temperatures(probabilities.log())
        sums = noise_fit.rate_likelihoods(tempered, given_labels, pattern)
        rates.append(noise_fit.expected_rate(sums, noise_fit.sure_samples(tempered), len(labels), 30.0)[0])
    assert rates[0] < 0.02
    assert rates[1] == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(("clients", "kept"), [(0, 0.0), (1, 0.0), (4, 0.75)])
def test_confusions_of_earlier_rounds_count_as_far_as_clients_are_missing(clients: int, kept: float) -> None:
    """The pattern of a round in which one of four clients takes part depends on the earlier rounds, too."""
    rng = torch.Generator().manual_seed(5)
    model, confusion = NoiseModel.initial(toy.CLASSES), torch.zeros(toy.CLASSES, toy.CLASSES)
    for _ in range(3):
        log_probs = torch.randn(30, toy.CLASSES, generator=rng).log_softmax(dim=1)
        labels = torch.randint(toy.CLASSES, (30,), generator=rng)
        sums = {**evidence(model, [log_probs] * len(JUDGES), labels), "fit/clients": torch.ones(1)}
        model = model.updated(sums, 30, clients=clients)
        newest = torch.zeros_like(confusion)
        for predicted, label in zip(log_probs.argmax(dim=1).tolist(), labels.tolist(), strict=True):
            newest[predicted, label] += 1
        confusion = kept * confusion + newest
    assert NoiseModel.read(model.tensors()).confusion.any().item() is False  # clients never receive it
    assert float(model.counts.sum()) == pytest.approx(30 * sum(kept**age for age in range(3)), rel=1e-4)
    torch.testing.assert_close(model.confusion, confusion)
    torch.testing.assert_close(model.pattern, noise_pattern(confusion).float())


def test_a_clients_own_frequencies_count_where_they_differ() -> None:
    even = torch.tensor([[0.5, 0.5]]).log()
    prior = torch.tensor([0.5, 0.5])
    assert prior_shift(torch.tensor([9, 9]), prior).tolist() == pytest.approx([0, 0], abs=1e-6)
    assert float((even + prior_shift(torch.tensor([9, 0]), prior)).softmax(dim=1)[0, 0]) > 0.9
    assert prior_shift(torch.tensor([9, 0]), torch.zeros(2)).tolist() == [0, 0]


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5), st.randoms())
def test_the_shift_of_the_prior_is_that_of_the_slow_twin(counts: list[int], random: object) -> None:
    prior = [random.uniform(0, 1) for _ in counts]  # type: ignore[attr-defined]
    found = prior_shift(torch.tensor(counts), torch.tensor(prior))
    assert found.tolist() == pytest.approx(naive.log_odds_of_classes(counts, prior), abs=1e-4)


def skewed(count: int = 30) -> ClientDataset:
    """A client with few of its labels in other classes than the first two."""
    data = toy.noisy(range(count))
    return replace(data, labels=torch.where(torch.arange(count) % 5 > 0, data.labels % 2, data.labels))


@pytest.mark.parametrize("shifted", [True, False])
def test_a_client_with_classes_of_its_own_trains_with_shifted_logits(shifted: bool) -> None:
    """One step, by hand: the gradient of the last layer's bias is the mean of softmax(logits + shift) - target."""
    method = RoflPlus(lr=0.1, momentum=0.0, weight_decay=0.0, batch=30, epochs=1, horizon=9, logit_adjustment=shifted)
    net, data = toy.network("mlp", width=0.06), skewed()
    start = believed(method.init(net), belief=0.0, gap=0.0)
    start.aux["noise/prior"].fill_(1 / toy.CLASSES)
    ctx = RoundContext(2, toy.SEED, client=0)
    index = next(data.batches(30, ctx.rng("batches")))
    with torch.no_grad():
        logits = net.train()(data.inputs(index, ctx.rng("augment")))[0]
    load_weights(net, start.model)
    update, _ = run_client(method, net, start, {}, data, ctx)
    shift = torch.tensor(naive.log_odds_of_classes(data.class_counts().tolist(), [1 / toy.CLASSES] * toy.CLASSES))
    probs = (logits + shift * shifted).softmax(dim=1)
    gradient = (probs - torch.nn.functional.one_hot(data.labels[index], toy.CLASSES)).mean(dim=0)
    bias = next(name for name in reversed(update.model) if name.endswith("bias"))
    torch.testing.assert_close(update.model[bias] / len(data), -0.1 * gradient, rtol=1e-3, atol=1e-5)


def test_centroids_are_means_weighted_by_the_posterior_of_a_slow_twin() -> None:
    """In round 3: what the client sends of Eq. 12, number by number."""
    net, ctx, data = toy.network(width=0.06), RoundContext(3, toy.SEED, client=0), toy.noisy(range(12))
    start = believed(PLUS.init(net), temperature=1.4)
    start.aux["noise/prior"].copy_(data.class_counts() / len(data))
    with torch.no_grad():
        logits, features = net.eval()(data.inputs(slice(None)))  # (12, K), (12, d)
    start.aux["centroids"].copy_(
        torch.randn(toy.CLASSES, features.shape[1], generator=torch.Generator().manual_seed(4))
    )
    update, _ = run_client(PLUS, net, start, {}, data, ctx)
    matrix = noise.symmetric(toy.CLASSES, 0.3).tolist()
    shifts = naive.log_odds_of_classes(data.class_counts().tolist(), start.aux["noise/prior"].tolist())
    weights = []
    for row, label in zip(logits.log_softmax(dim=1).tolist(), data.labels.tolist(), strict=True):
        log_p = [value + shift for value, shift in zip(row, shifts, strict=True)]
        weights.append(naive.class_posterior(log_p, label, 1.4, matrix))
    means = naive.weighted_class_means(features.tolist(), weights)
    for k, mean in enumerate(means):
        weight = eq.sim(start.aux["centroids"][k].tolist(), mean) if k in data.labels.tolist() else 0.0
        assert float(update.aux["similarity"][k]) == pytest.approx(weight, abs=1e-3)
        assert update.aux["centroids"][k].tolist() == pytest.approx([weight * value for value in mean], abs=1e-3)


@pytest.mark.parametrize("centroid_judge", [True, False])
def test_the_histories_are_those_of_the_classifier_and_of_the_centroids(centroid_judge: bool) -> None:
    net, data, method = toy.network(), CLIENTS[0], replace(PLUS, centroid_judge=centroid_judge)
    start = with_centroids(believed(method.init(net)))
    with torch.no_grad():
        logits, features = net.eval()(data.inputs(slice(None)))
    _, state = run_client(method, net, start, {}, data, RoundContext(2, toy.SEED, client=0))
    assert ("centroid_history" in state) == centroid_judge
    torch.testing.assert_close(state["history"], logits.log_softmax(dim=1), rtol=1e-4, atol=1e-4)
    for found, feature in zip(state.get("centroid_history", torch.empty(0)).tolist(), features.tolist(), strict=False):
        expected = naive.log_probs_by_centroids(feature, start.aux["centroids"].tolist())
        assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("judge", range(len(JUDGES)))
@pytest.mark.parametrize("own_classes", [False, True])
def test_samples_are_judged_by_classifier_and_centroids_as_the_server_says(judge: int, own_classes: bool) -> None:
    """One step, by hand: the last layer's bias moves by the mean of softmax(logits) - target."""
    method = RoflPlus(lr=0.1, momentum=0.0, weight_decay=0.0, batch=30, epochs=1, horizon=9, logit_adjustment=False)
    net, data, ctx = toy.network("mlp", width=0.06), toy.noisy(range(30)), RoundContext(2, toy.SEED, client=0)
    start = with_centroids(believed(method.init(net), belief=1.0, gap=0.0, judge=judge))
    counts = data.class_counts().tolist()
    prior = [float(k == 0) for k in range(toy.CLASSES)] if own_classes else [0.0] * toy.CLASSES
    start.aux["noise/prior"].copy_(torch.tensor(prior))
    shift = naive.log_odds_of_classes(counts, prior)
    index = next(data.batches(30, ctx.rng("batches")))
    with torch.no_grad():
        by_model, features = net.eval()(data.inputs(slice(None)))
        logits = net.train()(data.inputs(index, ctx.rng("augment")))[0]
    load_weights(net, start.model)
    update, _ = run_client(method, net, start, {}, data, ctx)
    weight = min(JUDGES[judge], 0.5 if own_classes else 1.0)
    matrix, targets = noise.symmetric(toy.CLASSES, 0.3).tolist(), []
    for row, feature, label in zip(by_model.tolist(), features.tolist(), data.labels.tolist(), strict=True):
        by_centroids = naive.log_probs_by_centroids(feature, start.aux["centroids"].tolist())
        both = [
            [math.log(p) for p in naive.softened([a + b for a, b in zip(each, shift, strict=True)], 1.0)]
            for each in (row, by_centroids)
        ]
        mixed = [weight * a + (1 - weight) * b for a, b in zip(*both, strict=True)]
        targets.append(naive.class_posterior(mixed, label, 1.0, matrix))
    power = naive.power_of_labels(0.5, toy.CLASSES, method.sharpness)
    wanted = torch.tensor([naive.sharpened(target, power) for target in targets])
    gradient = (logits.softmax(dim=1) - wanted[index]).mean(dim=0)
    bias = next(name for name in reversed(update.model) if name.endswith("bias"))
    torch.testing.assert_close(update.model[bias] / len(data), -0.1 * gradient, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("better", ["classifier", "centroids"])
def test_the_judge_who_explains_the_given_labels_best_is_chosen(better: str) -> None:
    """One judge knows the classes, the other guesses; a third of the labels is wrong."""
    rng, classes, samples = torch.Generator().manual_seed(5), 4, 1200
    truth = torch.randint(classes, (samples,), generator=rng)
    labels = torch.multinomial(noise.pair(classes, 0.35)[truth], 1, generator=rng).squeeze(1)
    good = (4 * torch.nn.functional.one_hot(truth, classes) + torch.randn(samples, classes, generator=rng)).float()
    bad = torch.randn(samples, classes, generator=rng)
    ends = (good, bad) if better == "classifier" else (bad, good)
    by_classifier, by_centroids = (each.log_softmax(dim=1) for each in ends)
    judges = [torch.lerp(by_centroids, by_classifier, weight) for weight in JUDGES]
    model = NoiseModel.initial(classes)
    for _ in range(6):
        model = model.updated(evidence(model, judges, labels), samples)
    assert model.classifier_weight == (1.0 if better == "classifier" else 0.0)
    assert model.rate == pytest.approx(0.35, abs=0.05)
    assert float((model.posterior(good.log_softmax(dim=1), labels).argmax(dim=1) == truth).double().mean()) > 0.9


def test_after_a_round_that_was_undone_a_client_does_not_take_its_own_part_out() -> None:
    """The server sends the same model again; taking out what is not in it would spoil the judgement."""
    net, start = toy.network(), believed(PLUS.init(toy.network()))
    _, kept = run_client(PLUS, net, start, {}, CLIENTS[0], RoundContext(2, toy.SEED, client=0))
    ctx = RoundContext(3, toy.SEED, client=0)
    found = []
    for method in (PLUS, replace(PLUS, leave_one_out=False)):
        load_weights(net, start.model)
        found.append(run_client(method, net, start, kept, CLIENTS[0], ctx)[0].aux)
    assert digest(found[0]) == digest(found[1])
    moved = replace(start, model={name: value * 1.01 for name, value in start.model.items()})
    load_weights(net, moved.model)
    usual = run_client(PLUS, net, moved, kept, CLIENTS[0], ctx)[0].aux
    load_weights(net, moved.model)
    assert digest(usual) != digest(
        run_client(replace(PLUS, leave_one_out=False), net, moved, kept, CLIENTS[0], ctx)[0].aux
    )


@pytest.mark.parametrize("name", ["cnn5", "cnn9", "small"])
def test_honest_centroids_pass_the_check_in_every_round(name: str) -> None:
    """The features of a deep network grow by orders of magnitude in the first rounds; no site is left out for it."""
    method, net, client_state = PLUS, toy.network(name, width=0.125), dict[str, torch.Tensor]()
    server_state = method.init(net)
    claims = Claims(samples=len(CLIENTS[0]), clients=1)
    for index in range(1, 8):
        load_weights(net, server_state.model)
        ctx = RoundContext(index, toy.SEED, client=0)
        update, client_state = run_client(method, net, server_state, client_state, CLIENTS[0], ctx)
        assert method.check_sums(update, server_state, claims) is None, index
        server_state = method.server_update(server_state, update, RoundContext(index, toy.SEED))
        assert bool(has_centroid(server_state.aux["centroids"]).any()) == (index >= 3)


@pytest.mark.parametrize(
    ("name", "lie"),
    [
        ("fit/rate", lambda value: value * 0 + 1e6),  # any noise rate and any judge, as it likes
        ("fit/rate", lambda value: value.index_fill(0, torch.tensor([1]), -1e9)),
        ("fit/temperature", lambda value: value * 1e4),
        ("fit/confidence", lambda value: value + 1e4),
        ("fit/clients", lambda value: value + 2),
        ("fit/sure", lambda value: value + 1e4),
        ("fit/sure", lambda value: value - 30),
        ("fit/sure", lambda value: torch.linspace(0, 20, 13).expand(3, -1)),  # surest of all if probabilities are even
        ("fit/counts", lambda value: value - 1e3),
        ("fit/confusion", lambda value: value + 100),
        ("fit/labels", lambda value: value * 1e6),
        ("fit/agreement", lambda value: torch.tensor([90.0, 24.0, 24.0, 24.0])),
        ("fit/agreement", lambda value: torch.tensor([9.0, 24.0, -99.0, 24.0])),
        ("fit/rate", lambda value: value * float("nan")),
        ("fit/rate", lambda value: value * 0),  # of one judge or of all: it explains everything
        ("fit/rate", lambda value: value.index_fill(0, torch.tensor([1]), -240.0)),  # ten nats for each label
        ("fit/rate", lambda value: value.index_fill(2, torch.tensor([9]), -0.5)),  # one rate alone
        ("fit/temperature", lambda value: value * 0 - 240.0),
        ("fit/confidence", lambda value: value * 0),
    ],
)
def test_evidence_that_no_samples_can_give_is_refused(name: str, lie: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A site could otherwise choose the noise, the temperature and the judge for all."""
    start = believed(PLUS.init(toy.network()))
    update = toy.train(PLUS, start, CLIENTS[0], 4)
    claims = Claims(samples=len(CLIENTS[0]), clients=1)
    assert PLUS.check_sums(update, start, claims) is None
    lying = replace(update, aux=update.aux | {name: lie(update.aux[name])})
    assert PLUS.check_sums(lying, start, claims) is not None


@pytest.mark.parametrize("name", ["lambda_cen", "lambda_e"])
def test_the_papers_other_terms_can_be_switched_on(name: str) -> None:
    start = believed(PLUS.init(toy.network()))
    start.aux["centroids"].fill_(1.0)
    usual, other = (toy.train(method, start, CLIENTS[0], 25) for method in (PLUS, replace(PLUS, **{name: 0.5})))
    assert digest(usual.model) != digest(other.model)


@pytest.mark.parametrize(("kind", "rate"), [("symmetric", 0.0), ("symmetric", 0.4), ("pair", 0.3)])
def test_the_noise_model_finds_rate_and_pattern_of_the_noise(kind: str, rate: float) -> None:
    """Predictions that are right as often as they say, over some rounds of the same evidence."""
    rng = torch.Generator().manual_seed(3)
    classes, samples = 5, 4000
    log_probs = (6 * torch.randn(samples, classes, generator=rng)).log_softmax(dim=1)
    truth = torch.multinomial(log_probs.exp(), 1, generator=rng).squeeze(1)
    matrix = (noise.pair if kind == "pair" else noise.symmetric)(classes, rate)
    labels = torch.multinomial(matrix[truth], 1, generator=rng).squeeze(1)
    model = NoiseModel.initial(classes)
    for _ in range(12):
        model = model.updated(evidence(model, [log_probs] * len(JUDGES), labels), samples)
    torch.testing.assert_close(model.noise_matrix.double(), matrix, atol=0.08, rtol=0)
    assert model.correction == pytest.approx(min(1.0, rate / 0.1), abs=0.2)
    assert model.resistance == 0
    corrected = model.posterior(log_probs, labels).argmax(dim=1)
    assert int((corrected != truth).sum()) <= int((labels != truth).sum())


@pytest.mark.parametrize(("belief", "kept"), [(0.2, False), (0.9, True)])
def test_the_highest_rate_is_kept_only_once_the_model_is_believed(belief: float, kept: bool) -> None:
    """A weak model takes its own mistakes for wrong labels; one that memorized wrong labels no longer sees them."""
    rng = torch.Generator().manual_seed(4)
    log_probs = torch.randn(2000, toy.CLASSES, generator=rng).log_softmax(dim=1)
    labels = torch.multinomial(log_probs.exp(), 1, generator=rng).squeeze(1)  # none of them is wrong
    start = believed(ServerState({}, {}), belief=belief, rate=0.4)
    model = NoiseModel.read(start.aux)
    after = model.updated(evidence(model, [log_probs] * len(JUDGES), labels), 2000)
    assert float(after.numbers[5]) == pytest.approx(0.4 if kept else float(after.numbers[4]))
    assert float(after.numbers[4]) < 0.35


def test_a_model_that_knows_nothing_is_not_believed_and_learns_as_fedavg_does() -> None:
    plain = FedAvg(lr=0.1, batch=6, epochs=2)
    start = PLUS.init(toy.network())
    ours, theirs = (toy.train(method, start, CLIENTS[0], 1) for method in (PLUS, plain))
    for name, value in theirs.model.items():
        torch.testing.assert_close(ours.model[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("index", "belief", "step"), [(1, 1.0, 1.0), (3, 1.0, 1.0), (10, 1.0, 0.3), (10, 0.0, 1.0)])
def test_the_servers_step_shrinks_towards_the_end_where_the_model_is_believed(
    index: int, belief: float, step: float
) -> None:
    start = believed(PLUS.init(toy.network()), belief=belief)
    update = toy.train(PLUS, start, CLIENTS[0], index)
    after = PLUS.server_update(start, update, RoundContext(index, toy.SEED))
    for name, value in start.model.items():
        torch.testing.assert_close(after.model[name], value + step * update.model[name] / update.weight)


def test_the_cautious_form_keeps_shapes_and_learns_from_labels_as_given() -> None:
    start = believed(PLUS.init(toy.network()), belief=1.0, gap=1.0)
    cautious = PLUS.cautious()
    update = toy.train(cautious, start, CLIENTS[0], 3)
    plain = toy.train(FedAvg(lr=0.1, batch=6, epochs=2), start, CLIENTS[0], 3)
    assert update.aux.keys() == PLUS.zero_update(start).aux.keys()
    for name, value in plain.model.items():
        torch.testing.assert_close(update.model[name], value, rtol=1e-3, atol=1e-3)
    assert OFF.cautious().memory == 0


def test_the_experiment_says_how_many_rounds_there_are() -> None:
    method = preset("digits", method="rofl-plus", rounds=12).build_method()
    assert isinstance(method, RoflPlus)
    assert method.horizon == 12
    assert method.with_rounds(99).horizon == 12


def test_it_keeps_learning_and_resists_where_a_third_of_the_labels_is_wrong() -> None:
    """Over many epochs plain FedAvg learns wrong labels by heart; rofl-plus keeps most of them out."""
    images, classes = toy.pixels()
    wrong = {}
    for name, method in {"plus": PLUS, "plain": FedAvg(lr=0.1, batch=6, epochs=2)}.items():
        net = toy.network(width=0.5)
        state = toy.play(replace(method, epochs=5), CLIENTS, rounds=20, net=net)
        load_weights(net, state.model)
        with torch.no_grad():
            predicted = net.eval()(toy.TRANSFORM(images))[0].argmax(dim=1)
        mislabelled = torch.cat([data.rows[data.labels != classes[data.rows]] for data in CLIENTS])
        given_labels = torch.cat([data.labels[data.labels != classes[data.rows]] for data in CLIENTS])
        wrong[name] = int((predicted[mislabelled] == given_labels).sum())
    assert wrong["plus"] < wrong["plain"]


@given(distributions(4), st.floats(1.0, 8.0))
def test_sharpening_keeps_the_order_and_favours_the_most_probable(p: list[float], power: float) -> None:
    found = sharpen(torch.tensor([p], dtype=torch.float64), power)[0]
    assert found.tolist() == pytest.approx(naive.sharpened(p, power), rel=1e-6)
    assert float(found.max()) >= max(p) - 1e-9


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(2, 20))
def test_labels_are_sharpened_where_the_model_is_nearly_right(low: float, high: float, classes: int) -> None:
    low, high = sorted((low, high))
    powers = [sharpening_power(accuracy, classes, 2.0) for accuracy in (low, high)]
    assert powers == pytest.approx([naive.power_of_labels(accuracy, classes, 2.0) for accuracy in (low, high)])
    assert 1 <= powers[0] <= powers[1] <= 2
    assert sharpening_power(high, classes, 1.0) == 1
