"""Co-teaching: two networks, each taught by the other."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, digest
from rofl.data import Shard, batches
from rofl.methods import CoTeaching, Global, Plain, Round, Update
from rofl.methods.training import load_weights, weights
from rofl.models import Network
from tests.methods import toy
from tests.naive import coteaching, equations

T = 6  # a round after the warm-up
METHOD = CoTeaching(lr=0.1, batch=8, epochs=2, tau=0.5, warmup=3)
ONE_STEP = replace(METHOD, batch=24, epochs=1, momentum=0.0, weight_decay=0.0)
DATA = toy.noisy(range(24))


@pytest.fixture(scope="module")
def glob() -> Global:
    """Both networks after two rounds."""
    return toy.play(METHOD, [DATA, toy.noisy(range(24, 48))], rounds=2)


def train(method: CoTeaching, glob: Global, data: Shard = DATA, index: int = T) -> Update:
    return toy.train(method, glob, data, index)


def loaded(tensors: Tensors, name: str = "small", width: float = 0.25) -> Network:
    net = toy.network(name, width)
    load_weights(net, tensors)
    return net


def first_batch(index: int = T) -> tuple[Tensor, Tensor]:
    """Rows and images of the first step of a round whose batch is the whole shard."""
    rnd = Round(index, toy.SEED, client=0)
    order = next(batches(len(DATA), len(DATA), rnd.rng("batches")))
    return order, DATA.inputs(order, rnd.rng("augment"))


def losses(tensors: Tensors) -> Tensor:
    """Each sample's loss in that batch, for a network with these weights."""
    order, inputs = first_batch()
    with torch.no_grad():
        logits, _ = loaded(tensors).train()(inputs)
    return torch.nn.functional.cross_entropy(logits, DATA.labels[order], reduction="none")


def easiest(tensors: Tensors) -> set[int]:
    """The half of that batch which a network finds easiest."""
    return set(losses(tensors).argsort()[: len(DATA) // 2].tolist())


def one_step(tensors: Tensors, chosen: set[int]) -> Tensors:
    """What one step on these samples of the batch changes, as a client reports it."""
    net, (order, inputs) = loaded(tensors).train(), first_batch()
    places = torch.tensor(sorted(chosen))
    logits, _ = net(inputs)
    torch.nn.functional.cross_entropy(logits[places], DATA.labels[order][places]).backward()
    return {name: -ONE_STEP.lr * len(DATA) * parameter.grad for name, parameter in net.named_parameters()}


def close(found: Tensors, expected: Tensors) -> bool:
    return all(torch.allclose(found[name], value, rtol=1e-3, atol=1e-4) for name, value in expected.items())


# --- Algorithm 1 ---


@pytest.mark.parametrize("name", ["small", "mlp"])
@pytest.mark.parametrize("index", [1, 2, T])
def test_a_client_does_what_algorithm_1_says(name: str, index: int) -> None:
    width = 0.06
    method = replace(METHOD, batch=6, warmup=2)  # R(t) of 6 samples: 4.5, then 3
    shards = [toy.noisy(range(12)), toy.shard([row for row in range(12, 30) if row % 4 != 2])]
    start = method.begin(toy.network(name, width))
    if index > 1:
        start = toy.play(replace(method, lr=0.02), shards, rounds=1, net=toy.network(name, width))
    for data in shards:
        rnd = Round(index, toy.SEED, client=0)
        epochs = toy.drawn_epochs(method, data, rnd)
        f, g = loaded(start.model, name, width), loaded(start.extra, name, width)
        coteaching.co_teach(
            f,
            g,
            data.labels.tolist(),
            epochs,
            index,
            lr=method.lr,
            momentum=method.momentum,
            weight_decay=method.weight_decay,
            tau=method.tau,
            warmup=method.warmup,
        )
        update = toy.train(method, start, data, index, net=toy.network(name, width))
        for net, before, found in [(f, start.model, update.model), (g, start.extra, update.extra)]:
            toy.assert_same_change(found, weights(net), before, len(data))


# --- each is taught by the other ---


def test_each_network_learns_from_the_others_choice_and_not_from_its_own(glob: Global) -> None:
    own, others = easiest(glob.model), easiest(glob.extra)
    assert own != others
    update = train(ONE_STEP, glob)
    assert close(update.model, one_step(glob.model, others))
    assert not close(update.model, one_step(glob.model, own))
    assert close(update.extra, one_step(glob.extra, own))
    assert not close(update.extra, one_step(glob.extra, others))


def test_another_peer_has_the_first_learn_from_other_samples(glob: Global) -> None:
    stranger = Global(glob.model, CoTeaching().begin(toy.network()).extra)
    assert easiest(stranger.extra) != easiest(glob.extra)
    found = train(ONE_STEP, stranger)
    assert digest(found.model) != digest(train(ONE_STEP, glob).model)
    assert close(found.model, one_step(glob.model, easiest(stranger.extra)))


def test_where_nothing_is_left_out_the_peer_has_no_say_and_each_is_plain_fedavg(glob: Global) -> None:
    method = replace(METHOD, tau=0.0)
    stranger = Global(glob.model, CoTeaching().begin(toy.network()).extra)
    assert digest(train(method, glob).model) == digest(train(method, stranger).model)
    plain = Plain(lr=METHOD.lr, batch=METHOD.batch, epochs=METHOD.epochs)
    found = train(method, glob)
    assert close(found.model, toy.train(plain, Global(glob.model), DATA, T).model)
    assert close(found.extra, toy.train(plain, Global(glob.extra), DATA, T).model)


def test_a_label_that_the_peer_finds_hard_does_not_matter_to_the_first(glob: Global) -> None:
    order, _ = first_batch()
    hardest = int(order[losses(glob.extra).argmax()])
    others = [label for label in range(toy.CLASSES) if label != int(DATA.labels[hardest])]
    found = []
    for label in others:
        labels = DATA.labels.clone()
        labels[hardest] = label
        found.append(replace(DATA, labels=labels))
    # whichever label it has, the peer leaves it out as long as it finds it hard
    kept = [data for data in found if _left_out(glob.extra, data, hardest)]
    assert kept
    assert all(digest(train(ONE_STEP, glob, data).model) == digest(train(ONE_STEP, glob).model) for data in kept)


def _left_out(tensors: Tensors, data: Shard, row: int) -> bool:
    order, inputs = first_batch()
    logits, _ = loaded(tensors).train()(inputs)
    each = torch.nn.functional.cross_entropy(logits.detach(), data.labels[order], reduction="none")
    return row not in order[each.argsort()[: len(data) // 2]].tolist()


# --- two networks ---


@pytest.mark.parametrize("name", ["small", "mlp", "cnn9"])
def test_the_two_start_from_different_weights_of_the_same_kind(name: str) -> None:
    begun = METHOD.begin(toy.network(name, width=0.06))
    assert begun.model.keys() == begun.extra.keys()
    for key, value in begun.model.items():
        peer = begun.extra[key]
        assert peer.shape == value.shape
        if value.dim() > 1:  # matrices and kernels are drawn, shifts and scales begin alike
            assert not torch.equal(peer, value), key
            assert 0.3 < float(peer.std() / value.std()) < 3


def test_the_first_is_the_given_network_and_the_same_seed_gives_the_same_two() -> None:
    net = toy.network()
    before = digest(weights(net))
    begun, again = METHOD.begin(net), METHOD.begin(toy.network())
    assert digest(weights(net)) == digest(begun.model) == before
    assert digest(begun.model, begun.extra) == digest(again.model, again.extra)


def test_another_seed_gives_another_peer() -> None:
    first, second = toy.network(), toy.network()
    with torch.no_grad():
        next(second.parameters()).mul_(1.5)
    assert digest(METHOD.begin(first).extra) != digest(METHOD.begin(second).extra)


def test_drawing_the_peer_leaves_the_callers_randomness_alone() -> None:
    net, before = toy.network(), torch.get_rng_state()
    METHOD.begin(net)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_server_averages_both_networks_by_samples(glob: Global) -> None:
    shards = [DATA, toy.shard([72]), toy.shard(range(48, 60))]
    updates = [toy.train(METHOD, glob, data, T, client) for client, data in enumerate(shards)]
    merged = METHOD.server(glob, sum(updates, METHOD.blank(glob)), Round(T, toy.SEED))
    for before, after, parts in [
        (glob.model, merged.model, [update.model for update in updates]),
        (glob.extra, merged.extra, [update.extra for update in updates]),
    ]:
        for name, value in after.items():
            local = [
                (before[name] + part[name] / len(data)).flatten().tolist()
                for part, data in zip(parts, shards, strict=True)
            ]
            average = equations.fedavg(local, [len(data) for data in shards])
            torch.testing.assert_close(value.flatten(), torch.tensor(average), rtol=1e-4, atol=1e-5)
            assert not torch.equal(value, before[name])


def test_after_rounds_together_the_two_are_still_two(glob: Global) -> None:
    assert all(not torch.equal(glob.model[name], glob.extra[name]) for name in glob.model)


def test_the_network_of_the_engine_ends_as_the_first(glob: Global) -> None:
    net = toy.network()
    update = toy.train(METHOD, glob, DATA, T, net=net)
    for name, value in weights(net).items():
        torch.testing.assert_close(len(DATA) * (value - glob.model[name]), update.model[name])


# --- R(t) ---


def test_r_of_t_falls_until_the_warmup_ends(glob: Global) -> None:
    rates = [METHOD.keep_rate(Round(index, toy.SEED)) for index in range(1, 8)]
    assert rates == pytest.approx([5 / 6, 4 / 6, 0.5, 0.5, 0.5, 0.5, 0.5])
    full = train(replace(METHOD, warmup=1), glob)
    assert digest(train(replace(METHOD, warmup=T), glob).model) == digest(full.model)
    assert digest(train(replace(METHOD, warmup=2 * T), glob).model) != digest(full.model)
    half = train(replace(METHOD, tau=0.25, warmup=1), glob)
    assert digest(train(replace(METHOD, warmup=2 * T), glob).model) == digest(half.model)


def test_the_reported_loss_is_that_of_the_chosen_samples(glob: Global) -> None:
    own, others = losses(glob.model), losses(glob.extra)
    taught = own[sorted(easiest(glob.extra))].mean() + others[sorted(easiest(glob.model))].mean()
    metrics = train(ONE_STEP, glob).metrics
    assert metrics["samples"] == len(DATA)
    assert metrics["loss"] == pytest.approx(float(taught) * len(DATA), rel=1e-4)


def test_tau_must_be_a_number_by_the_time_of_training(glob: Global) -> None:
    unknown = replace(METHOD, tau="known")
    with pytest.raises(ValueError, match="tau"):
        train(unknown, glob)
    assert digest(train(unknown.for_noise("pair", 0.5), glob).model) == digest(train(METHOD, glob).model)


def test_published_weights_stay_in_the_peer_and_its_classifier_is_its_own() -> None:
    net = toy.network()
    net.pretrained = True
    begun = toy.build("coteaching").begin(net)
    for name, value in begun.model.items():
        assert torch.equal(value, begun.extra[name]) == (not name.startswith("classifier.")), name
