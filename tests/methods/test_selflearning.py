"""Deep self-learning: labels corrected by several prototypes per class."""

from dataclasses import replace

import pytest
import torch

from rofl.core.tensors import Tensors, check_like, digest
from rofl.data import ClientDataset
from rofl.methods import FedAvg, RoundContext, SelfLearning, ServerState, Update
from rofl.methods.weights import load_weights, model_weights
from rofl.models import Network
from tests.methods import toy
from tests.naive import selflearning

START = 3
METHOD = SelfLearning(lr=0.1, batch=8, epochs=2, lr_decay_every=0, start=START)
PLAIN = FedAvg(lr=0.1, batch=8, epochs=2)
ONE_STEP = replace(METHOD, batch=24, epochs=1, momentum=0.0, weight_decay=0.0)
DATA = toy.noisy(range(24))


@pytest.fixture(scope="module")
def young() -> ServerState:
    """After two rounds: features are mixed still."""
    return toy.play(METHOD, [DATA, toy.noisy(range(24, 48))], rounds=2)


@pytest.fixture(scope="module")
def grown() -> ServerState:
    """After rounds with right labels: features of a class lie together."""
    return toy.play(FedAvg(lr=0.05, batch=8, epochs=2, lr_decay_every=3), [toy.client_data(range(96))], rounds=5)


def train(
    method: SelfLearning | FedAvg, server_state: ServerState, data: ClientDataset = DATA, index: int = START
) -> Update:
    return toy.train(method, server_state, data, index)


def same_weights(left: Update, right: Update) -> bool:
    return digest(left.model) == digest(right.model)


def loaded(tensors: Tensors, name: str = "small", width: float = 0.25) -> Network:
    net = toy.network(name, width)
    load_weights(net, tensors)
    return net


def shuffled(data: ClientDataset, ctx: RoundContext) -> list[int]:
    return torch.randperm(len(data), generator=ctx.rng("prototypes")).tolist()


def corrected(
    server_state: ServerState, data: ClientDataset, method: SelfLearning = METHOD, index: int = START
) -> list[int]:
    """The slow twin's labels for a client's data."""
    with torch.no_grad():
        _, features = loaded(server_state.model).eval()(data.inputs(slice(None)))
    rows = shuffled(data, RoundContext(index, toy.SEED, client=0))
    labels = data.labels.tolist()
    return selflearning.correct(features.tolist(), labels, rows, toy.CLASSES, method.sample, method.prototypes)


# --- the two phases ---


@pytest.mark.parametrize("name", ["small", "mlp"])
@pytest.mark.parametrize("index", [1, START - 1, START, START + 2])
def test_a_client_does_what_the_paper_says(name: str, index: int) -> None:
    width = 0.06
    method = replace(METHOD, batch=6, lr_decay_every=2, alpha=0.6, sample=4, prototypes=2)
    shards = [toy.noisy(range(24)), toy.client_data([row for row in range(12, 30) if row % 4 != 2])]
    start = toy.play(replace(method, lr=0.05), shards, rounds=2, net=toy.network(name, width))
    for data in shards:
        ctx = RoundContext(index, toy.SEED, client=0)
        epochs = toy.drawn_epochs(method, data, ctx)
        net = loaded(start.model, name, width)
        labels = selflearning.self_learn(
            net,
            data.inputs(slice(None)),
            data.labels.tolist(),
            shuffled(data, ctx),
            epochs,
            index,
            lr=method.lr,
            momentum=method.momentum,
            weight_decay=method.weight_decay,
            lr_decay_every=method.lr_decay_every,
            start=method.start,
            alpha=method.alpha,
            sample=method.sample,
            count=method.prototypes,
        )
        update = toy.train(method, start, data, index, net=toy.network(name, width))
        toy.assert_same_change(update.model, model_weights(net), start.model, len(data))
        changed = sum(a != b for a, b in zip(labels, data.labels.tolist(), strict=True))
        assert update.metrics["corrected"] == changed * method.epochs
        assert (changed > 0) == (index >= START)


@pytest.mark.parametrize("settings", [{}, {"sample": 3}, {"sample": 1}, {"prototypes": 1}, {"prototypes": 9}])
def test_with_nothing_but_corrected_labels_it_is_plain_fedavg_on_them(
    young: ServerState, settings: dict[str, int]
) -> None:
    method = replace(METHOD, alpha=1.0, **settings)
    labels = corrected(young, DATA, method)
    assert labels != DATA.labels.tolist()
    update = train(method, young)
    assert same_weights(update, train(PLAIN, young, replace(DATA, labels=torch.tensor(labels))))


def test_labels_are_corrected_by_the_received_model_in_evaluation_mode_without_augmentation(young: ServerState) -> None:
    """The claim of the test above is not empty: asked otherwise, the same model corrects otherwise."""
    ctx = RoundContext(START, toy.SEED, client=0)
    expected = corrected(young, DATA)
    for net, inputs in [
        (loaded(young.model).train(), DATA.inputs(slice(None))),
        (loaded(young.model).eval(), DATA.inputs(slice(None), ctx.rng("augment"))),
    ]:
        with torch.no_grad():
            _, features = net(inputs)
        rows, labels = shuffled(DATA, ctx), DATA.labels.tolist()
        assert selflearning.correct(features.tolist(), labels, rows, toy.CLASSES, 128, 3) != expected


# --- alpha ---


@pytest.mark.parametrize("index", [1, START, START + 4])
@pytest.mark.parametrize("name", ["small", "mlp", "cnn9"])
def test_with_alpha_0_it_is_plain_fedavg_to_the_bit(name: str, index: int) -> None:
    net = toy.network(name, width=0.125)
    start = METHOD.init(net)
    ours = toy.train(replace(METHOD, alpha=0.0), start, DATA, index, net=net)
    theirs = toy.train(PLAIN, start, DATA, index, net=net)
    assert same_weights(ours, theirs)
    assert ours.weight == theirs.weight
    assert ours.metrics["loss"] == pytest.approx(theirs.metrics["loss"], rel=1e-6)
    assert ours.metrics["corrected"] == 0


def test_before_the_start_all_given_labels_are_believed(young: ServerState) -> None:
    assert same_weights(train(METHOD, young, index=START - 1), train(PLAIN, young, index=START - 1))
    assert not same_weights(train(METHOD, young, index=START), train(PLAIN, young, index=START))


@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.9])
def test_alpha_mixes_the_two_gradients(young: ServerState, alpha: float) -> None:
    given, better, mixed = (train(replace(ONE_STEP, alpha=share), young) for share in (0.0, 1.0, alpha))
    assert not same_weights(given, better)
    for name, parameter in toy.network().named_parameters():
        expected = (1 - alpha) * given.model[name] + alpha * better.model[name]
        assert parameter.shape == expected.shape
        torch.testing.assert_close(mixed.model[name], expected, rtol=1e-3, atol=1e-4)
    assert mixed.metrics["loss"] == pytest.approx(
        (1 - alpha) * given.metrics["loss"] + alpha * better.metrics["loss"], rel=1e-4
    )


# --- correction ---


@pytest.mark.parametrize("prototypes", [1, 3])
def test_once_features_separate_the_wrong_labels_are_set_right(grown: ServerState, prototypes: int) -> None:
    """With nothing but corrected labels a client with wrong ones trains as one whose labels are all right."""
    method, data, clean = (
        replace(METHOD, alpha=1.0, prototypes=prototypes),
        toy.noisy(range(48)),
        toy.client_data(range(48)),
    )
    wrong = int((data.labels != clean.labels).sum())
    assert wrong >= 10
    update = train(method, grown, data)
    assert update.metrics["corrected"] == wrong * METHOD.epochs
    assert same_weights(update, train(PLAIN, grown, clean))
    assert not same_weights(update, train(PLAIN, grown, data))


@pytest.mark.parametrize("data", toy.clients().values(), ids=toy.clients())
@pytest.mark.parametrize("prototypes", [1, 3])
def test_few_samples_and_absent_classes_are_no_trouble(
    grown: ServerState, data: ClientDataset, prototypes: int
) -> None:
    method = replace(METHOD, alpha=1.0, prototypes=prototypes)
    update = train(method, grown, data)
    assert check_like(update.model, method.zero_update(grown).model) is None
    assert all(value == value and abs(value) < 1e6 for value in update.metrics.values())
    labels = corrected(grown, data, method)
    assert set(labels) <= set(data.labels.tolist())  # nobody is given a class that the client lacks
    assert same_weights(update, train(PLAIN, grown, replace(data, labels=torch.tensor(labels))))


def test_classes_of_one_two_and_no_sample_keep_their_places(grown: ServerState) -> None:
    data = toy.client_data([0, 4, 8, 12, 1, 5, 3])  # four, two, none and one of the classes
    update = train(replace(METHOD, alpha=1.0), grown, data)
    assert update.metrics["corrected"] == 0
    assert same_weights(update, train(PLAIN, grown, data))


def test_a_network_whose_features_are_all_zero_gives_no_nan(grown: ServerState) -> None:
    dead = {name: torch.zeros_like(value) for name, value in grown.model.items()}
    update = train(METHOD, ServerState(dead))
    assert check_like(update.model, METHOD.zero_update(grown).model) is None


def test_prototypes_are_looked_for_among_other_images_in_every_round(young: ServerState) -> None:
    """Only a sample is looked at; a larger one than there are images is all of them."""
    few = replace(METHOD, sample=2, alpha=1.0)
    assert len({tuple(corrected(young, DATA, few, index)) for index in range(START, START + 5)}) > 1
    most = max(DATA.class_counts().tolist())
    assert same_weights(train(replace(METHOD, sample=most), young), train(replace(METHOD, sample=999), young))
    assert not same_weights(train(few, young), train(replace(METHOD, alpha=1.0), young))


def test_the_published_rate_falls_by_10_every_5_rounds() -> None:
    rates = [SelfLearning().learning_rate(RoundContext(index, 0)) for index in range(1, 12)]
    assert rates == pytest.approx([0.002] * 5 + [0.0002] * 5 + [0.00002])
