"""Co-teaching: two networks, each taught by the other."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rofl.core.tensors import Tensors, digest
from rofl.data import ClientDataset, batches
from rofl.methods import CoTeaching, FedAvg, RoundContext, ServerState, Update
from rofl.methods.weights import load_weights, model_weights
from rofl.models import Network
from tests.methods import toy
from tests.naive import coteaching, equations

T = 6  # a round after the warm-up
METHOD = CoTeaching(lr=0.1, batch=8, epochs=2, tau=0.5, warmup=3)
ONE_STEP = replace(METHOD, batch=24, epochs=1, momentum=0.0, weight_decay=0.0)
DATA = toy.noisy(range(24))


@pytest.fixture(scope="module")
def server_state() -> ServerState:
    """Both networks after two rounds."""
    return toy.play(METHOD, [DATA, toy.noisy(range(24, 48))], rounds=2)


def train(method: CoTeaching, server_state: ServerState, data: ClientDataset = DATA, index: int = T) -> Update:
    return toy.train(method, server_state, data, index)


def loaded(tensors: Tensors, name: str = "small", width: float = 0.25) -> Network:
    net = toy.network(name, width)
    load_weights(net, tensors)
    return net


def first_batch(index: int = T) -> tuple[Tensor, Tensor]:
    """Rows and images of the first step of a round whose batch is the whole shard."""
    ctx = RoundContext(index, toy.SEED, client=0)
    order = next(batches(len(DATA), len(DATA), ctx.rng("batches")))
    return order, DATA.inputs(order, ctx.rng("augment"))


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
    shards = [toy.noisy(range(12)), toy.client_data([row for row in range(12, 30) if row % 4 != 2])]
    start = method.init(toy.network(name, width))
    if index > 1:
        start = toy.play(replace(method, lr=0.02), shards, rounds=1, net=toy.network(name, width))
    for data in shards:
        ctx = RoundContext(index, toy.SEED, client=0)
        epochs = toy.drawn_epochs(method, data, ctx)
        f, g = loaded(start.model, name, width), loaded(start.aux, name, width)
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
        for net, before, found in [(f, start.model, update.model), (g, start.aux, update.aux)]:
            toy.assert_same_change(found, model_weights(net), before, len(data))


# --- each is taught by the other ---


def test_each_network_learns_from_the_others_choice_and_not_from_its_own(server_state: ServerState) -> None:
    own, others = easiest(server_state.model), easiest(server_state.aux)
    assert own != others
    update = train(ONE_STEP, server_state)
    assert close(update.model, one_step(server_state.model, others))
    assert not close(update.model, one_step(server_state.model, own))
    assert close(update.aux, one_step(server_state.aux, own))
    assert not close(update.aux, one_step(server_state.aux, others))


def test_another_peer_has_the_first_learn_from_other_samples(server_state: ServerState) -> None:
    stranger = ServerState(server_state.model, CoTeaching().init(toy.network()).aux)
    assert easiest(stranger.aux) != easiest(server_state.aux)
    found = train(ONE_STEP, stranger)
    assert digest(found.model) != digest(train(ONE_STEP, server_state).model)
    assert close(found.model, one_step(server_state.model, easiest(stranger.aux)))


def test_where_nothing_is_left_out_the_peer_has_no_say_and_each_is_plain_fedavg(server_state: ServerState) -> None:
    method = replace(METHOD, tau=0.0)
    stranger = ServerState(server_state.model, CoTeaching().init(toy.network()).aux)
    assert digest(train(method, server_state).model) == digest(train(method, stranger).model)
    plain = FedAvg(lr=METHOD.lr, batch=METHOD.batch, epochs=METHOD.epochs)
    found = train(method, server_state)
    assert close(found.model, toy.train(plain, ServerState(server_state.model), DATA, T).model)
    assert close(found.aux, toy.train(plain, ServerState(server_state.aux), DATA, T).model)


def test_a_label_that_the_peer_finds_hard_does_not_matter_to_the_first(server_state: ServerState) -> None:
    order, _ = first_batch()
    hardest = int(order[losses(server_state.aux).argmax()])
    others = [label for label in range(toy.CLASSES) if label != int(DATA.labels[hardest])]
    found = []
    for label in others:
        labels = DATA.labels.clone()
        labels[hardest] = label
        found.append(replace(DATA, labels=labels))
    # whichever label it has, the peer leaves it out as long as it finds it hard
    kept = [data for data in found if _left_out(server_state.aux, data, hardest)]
    assert kept
    assert all(
        digest(train(ONE_STEP, server_state, data).model) == digest(train(ONE_STEP, server_state).model)
        for data in kept
    )


def _left_out(tensors: Tensors, data: ClientDataset, row: int) -> bool:
    order, inputs = first_batch()
    logits, _ = loaded(tensors).train()(inputs)
    each = torch.nn.functional.cross_entropy(logits.detach(), data.labels[order], reduction="none")
    return row not in order[each.argsort()[: len(data) // 2]].tolist()


# --- two networks ---


@pytest.mark.parametrize("name", ["small", "mlp", "cnn9"])
def test_the_two_start_from_different_weights_of_the_same_kind(name: str) -> None:
    begun = METHOD.init(toy.network(name, width=0.06))
    assert begun.model.keys() == begun.aux.keys()
    for key, value in begun.model.items():
        peer = begun.aux[key]
        assert peer.shape == value.shape
        if value.dim() > 1:  # matrices and kernels are drawn, shifts and scales begin alike
            assert not torch.equal(peer, value), key
            assert 0.3 < float(peer.std() / value.std()) < 3


def test_the_first_is_the_given_network_and_the_same_seed_gives_the_same_two() -> None:
    net = toy.network()
    before = digest(model_weights(net))
    begun, again = METHOD.init(net), METHOD.init(toy.network())
    assert digest(model_weights(net)) == digest(begun.model) == before
    assert digest(begun.model, begun.aux) == digest(again.model, again.aux)


def test_another_seed_gives_another_peer() -> None:
    first, second = toy.network(), toy.network()
    with torch.no_grad():
        next(second.parameters()).mul_(1.5)
    assert digest(METHOD.init(first).aux) != digest(METHOD.init(second).aux)


def test_drawing_the_peer_leaves_the_callers_randomness_alone() -> None:
    net, before = toy.network(), torch.get_rng_state()
    METHOD.init(net)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_server_averages_both_networks_by_samples(server_state: ServerState) -> None:
    shards = [DATA, toy.client_data([72]), toy.client_data(range(48, 60))]
    updates = [toy.train(METHOD, server_state, data, T, client) for client, data in enumerate(shards)]
    merged = METHOD.server_update(
        server_state, sum(updates, METHOD.zero_update(server_state)), RoundContext(T, toy.SEED)
    )
    for before, after, parts in [
        (server_state.model, merged.model, [update.model for update in updates]),
        (server_state.aux, merged.aux, [update.aux for update in updates]),
    ]:
        for name, value in after.items():
            local = [
                (before[name] + part[name] / len(data)).flatten().tolist()
                for part, data in zip(parts, shards, strict=True)
            ]
            average = equations.fedavg(local, [len(data) for data in shards])
            torch.testing.assert_close(value.flatten(), torch.tensor(average), rtol=1e-4, atol=1e-5)
            assert not torch.equal(value, before[name])


def test_after_rounds_together_the_two_are_still_two(server_state: ServerState) -> None:
    assert all(not torch.equal(server_state.model[name], server_state.aux[name]) for name in server_state.model)


def test_the_network_of_the_engine_ends_as_the_first(server_state: ServerState) -> None:
    net = toy.network()
    update = toy.train(METHOD, server_state, DATA, T, net=net)
    for name, value in model_weights(net).items():
        torch.testing.assert_close(len(DATA) * (value - server_state.model[name]), update.model[name])


# --- R(t) ---


def test_r_of_t_falls_until_the_warmup_ends(server_state: ServerState) -> None:
    rates = [METHOD.keep_rate(RoundContext(index, toy.SEED)) for index in range(1, 8)]
    assert rates == pytest.approx([5 / 6, 4 / 6, 0.5, 0.5, 0.5, 0.5, 0.5])
    full = train(replace(METHOD, warmup=1), server_state)
    assert digest(train(replace(METHOD, warmup=T), server_state).model) == digest(full.model)
    assert digest(train(replace(METHOD, warmup=2 * T), server_state).model) != digest(full.model)
    half = train(replace(METHOD, tau=0.25, warmup=1), server_state)
    assert digest(train(replace(METHOD, warmup=2 * T), server_state).model) == digest(half.model)


def test_the_reported_loss_is_that_of_the_chosen_samples(server_state: ServerState) -> None:
    own, others = losses(server_state.model), losses(server_state.aux)
    taught = own[sorted(easiest(server_state.aux))].mean() + others[sorted(easiest(server_state.model))].mean()
    metrics = train(ONE_STEP, server_state).metrics
    assert metrics["samples"] == len(DATA)
    assert metrics["loss"] == pytest.approx(float(taught) * len(DATA), rel=1e-4)


def test_tau_must_be_a_number_by_the_time_of_training(server_state: ServerState) -> None:
    unknown = replace(METHOD, tau="known")
    with pytest.raises(ValueError, match="tau"):
        train(unknown, server_state)
    assert digest(train(unknown.with_noise_rate("pair", 0.5), server_state).model) == digest(
        train(METHOD, server_state).model
    )


def test_published_weights_stay_in_the_peer_and_its_classifier_is_its_own() -> None:
    net = toy.network()
    net.pretrained = True
    begun = toy.build("coteaching").init(net)
    for name, value in begun.model.items():
        assert torch.equal(value, begun.aux[name]) == (not name.startswith("classifier.")), name
