"""FedDiv, FedGR and FedCorr against their slow twins, and what each of them promises."""

from dataclasses import replace

import pytest
import torch

from rofl.core.rng import numpy_generator
from rofl.core.tensors import digest, float_entries
from rofl.data.client_dataset import batches
from rofl.methods import RoundContext, ServerState
from rofl.methods.fedcorr import FedCorr, relabelled, split_clients
from rofl.methods.feddiv import FedDiv, global_mixture
from rofl.methods.fedgr import FedGR, refined_loss
from rofl.methods.inference import predict_client
from rofl.methods.views import strong_view
from rofl.methods.weights import load_weights
from rofl.simulation.client import run_client
from tests.methods import toy
from tests.naive import filtered_updates as naive
from tests.naive import gaussians

DATA = toy.noisy(range(20))
LABELS = DATA.labels.tolist()
IMAGES = DATA.inputs(torch.arange(len(DATA)))
SGD = {"lr": 0.1, "momentum": 0.5, "weight_decay": 1e-4, "batch": 8, "epochs": 2}
RATES = (0.1, 0.5, 1e-4)
CTX = RoundContext(5, toy.SEED, client=1)


def net_of(state: ServerState):
    net = toy.network("mlp")
    load_weights(net, state.model)
    return net


def mixed_epochs(method, chosen: list[int]) -> list[list[naive.MixedBatch]]:
    """The batches of the chosen samples as the method draws and mixes them."""
    order, augment, partners = CTX.rng("batches"), CTX.rng("augment"), CTX.rng("mixup")
    shares = numpy_generator(CTX.seed, CTX.index, CTX.client, "mixup")
    epochs = []
    for _ in range(method.epochs):
        drawn = []
        for places in batches(len(chosen), method.batch, order):
            rows = torch.tensor(chosen)[places]
            images, share = DATA.inputs(rows, augment), float(shares.beta(1.0, 1.0))
            drawn.append((rows.tolist(), images, torch.randperm(len(rows), generator=partners).tolist(), share))
        epochs.append(drawn)
    return epochs


@pytest.fixture(scope="module")
def trained() -> ServerState:
    """Weights that know the classes."""
    return toy.play(toy.build("plain", lr=0.1), [toy.client_data(range(48))], rounds=4, net=toy.network("mlp"))


# --- FedDiv ---

FILTER = [(0.05, 0.1, 0.6), (0.7, 0.3, 0.4)]


def feddiv_state(trained: ServerState) -> ServerState:
    total = torch.tensor([50 * value for component in FILTER for value in component] + [50.0])
    return ServerState(trained.model, {"filter": total})


@pytest.mark.parametrize("start", [9, 2], ids=["warm-up", "filtering"])
def test_feddiv_is_its_slow_twin(trained: ServerState, start: int) -> None:
    method, state = FedDiv(**SGD, start=start), feddiv_state(trained)
    net = net_of(state)
    predictions = naive.all_probabilities(net, IMAGES)
    last = [p.index(max(p)) for p in predictions]
    last[3] = (last[3] + 1) % toy.CLASSES  # of this one the local model thought otherwise
    labels, chosen = LABELS, list(range(len(LABELS)))
    if start == 2:
        labels, chosen = naive.feddiv_selection(predictions, LABELS, last, FILTER, 0.1, 0.75)
        assert 3 not in chosen
        assert 5 < len(chosen) < len(LABELS)
    naive.mixup_training(net, labels, mixed_epochs(method, chosen), RATES, lambda_prior=1.0, pull=0.0)
    kept = {"debiased_labels": torch.tensor(last), "prior": torch.full((4,), 0.25), "sent_filter": torch.ones(7)}
    update, after = run_client(method, toy.network("mlp"), state, kept, DATA, CTX)
    toy.assert_same_change(update.model, net.state_dict(), state.model, len(DATA))
    own = naive.all_probabilities(net, IMAGES)
    mixture = gaussians.fit(naive.scaled(naive.cross_entropies(own, LABELS)), FILTER, 3, 0.02)
    sent = torch.tensor([len(DATA) * value for component in mixture for value in component] + [len(DATA)])
    torch.testing.assert_close(update.aux["filter"], sent - 1, rtol=1e-2, atol=2e-2)
    debiased, prior = naive.feddiv_debias(own, [0.25] * 4, 0.5, 0.2)
    assert after["debiased_labels"].tolist() == debiased
    torch.testing.assert_close(after["prior"], torch.tensor(prior), rtol=1e-3, atol=1e-4)


def test_the_running_total_is_the_mean_over_the_servers_cache_of_all_clients(trained: ServerState) -> None:
    method = FedDiv(**SGD, start=99)
    state, cache, kept = method.init(net_of(trained)), {}, {}
    shards = {0: DATA, 1: toy.noisy(range(24, 60)), 2: toy.client_data(range(60, 72))}
    for index, cohort in enumerate([[0, 1], [2], [0], [1, 2]], start=1):
        total = method.zero_update(state)
        for client in cohort:
            update, kept[client] = run_client(
                method, toy.network("mlp"), state, kept.get(client, {}), shards[client], RoundContext(index, 1, client)
            )
            cache[client] = kept[client]["sent_filter"]
            total = total + update
        state = method.server_update(state, total, RoundContext(index, 1))
        found, weight = global_mixture(state.aux["filter"]), sum(float(sent[6]) for sent in cache.values())
        assert found is not None
        expected = sum(sent[:6] for sent in cache.values()) / weight
        torch.testing.assert_close(found.flatten(), expected, rtol=1e-3, atol=1e-3)
        assert weight == sum(len(shards[client]) for client in cache)


def test_a_client_with_few_noisy_samples_trains_on_all_as_given(trained: ServerState) -> None:
    method, state = FedDiv(**SGD, start=2), feddiv_state(trained)
    lenient = ServerState(state.model, {"filter": torch.tensor([2.5, 500.0, 25.0, 45.0, 1.0, 25.0, 50.0])})  # all clean
    update, _ = run_client(method, toy.network("mlp"), lenient, {}, DATA, CTX)
    plain, _ = run_client(replace(method, start=99), toy.network("mlp"), lenient, {}, DATA, CTX)
    assert digest(update.model) == digest(plain.model)
    assert update.metrics["selected"] == update.metrics["samples"]


# --- FedGR ---

MIXTURE = torch.tensor([[0.3, 0.3, 0.6], [3.0, 1.0, 0.4]])


def strong_epochs(method) -> list[list[tuple[list[int], torch.Tensor]]]:
    order, augment, views = CTX.rng("batches"), CTX.rng("augment"), CTX.rng("views")
    return [
        [(rows.tolist(), strong_view(DATA.inputs(rows, augment), views)) for rows in DATA.batches(method.batch, order)]
        for _ in range(method.epochs)
    ]


@pytest.mark.parametrize(
    ("start", "noisy_share"), [(9, 0.8), (2, 0.8), (2, 0.05)], ids=["warm-up", "mixed", "untrusted"]
)
def test_fedgr_is_its_slow_twin(trained: ServerState, start: int, noisy_share: float) -> None:
    method = FedGR(**SGD, start=start, noisy_share=noisy_share, confidence=0.6)
    state = ServerState(trained.model, {"mixture": MIXTURE})
    net = net_of(state)
    predictions = naive.all_probabilities(net, IMAGES)
    before = torch.rand(len(DATA), generator=CTX.rng("mean"))
    mean = [
        (2 * float(old) + min(loss, 10.0)) / 3
        for old, loss in zip(before, naive.cross_entropies(predictions, LABELS), strict=True)
    ]
    kept = {"loss_mean": before, "visits": torch.tensor([2.0]), "pseudo_labels": torch.full((len(DATA),), -1)}
    kept["pseudo_labels"][2] = 1
    last = toy.network("mlp", seed=3)  # the teacher of the last round
    kept |= {f"teacher/{name}": value.clone() for name, value in last.state_dict().items() if value.is_floating_point()}
    pseudo, clean, taught, teacher = kept["pseudo_labels"].tolist(), [1.0] * len(DATA), None, net_of(state)
    if start == 2:
        mixture = [tuple(row) for row in MIXTURE.tolist()]
        clean = [gaussians.posterior(value, mixture)[0] for value in mean]
        for row, p in enumerate(predictions):
            guess = p.index(max(p)) if max(p) > 0.6 else pseudo[row]
            pseudo[row] = LABELS[row] if clean[row] >= 0.5 else guess
        with torch.no_grad():
            for name, value in teacher.state_dict().items():
                value.copy_(0.9 * last.state_dict()[name] + 0.1 * value)
        taught = predict_client(teacher, DATA)[0]
        assert 0.05 < sum(value < 0.5 for value in clean) / len(clean) < 0.8
    features = predict_client(net, DATA)[1]
    naive.fedgr(
        net, teacher, LABELS, pseudo, clean, noisy_share > 0.5, features, taught, strong_epochs(method), 0.1, RATES
    )
    update, after = run_client(method, toy.network("mlp"), state, kept, DATA, CTX)
    toy.assert_same_change(update.model, net.state_dict(), state.model, len(DATA))
    assert after["pseudo_labels"].tolist() == pseudo
    torch.testing.assert_close(after["loss_mean"], torch.tensor(mean), rtol=1e-4, atol=1e-4)
    for name, value in float_entries(teacher.state_dict()).items():
        torch.testing.assert_close(after[f"teacher/{name}"], value, rtol=1e-3, atol=1e-4)
    assert update.aux["histogram"].sum() == len(DATA)


def test_the_servers_mixture_is_that_of_all_losses_of_the_cohort() -> None:
    method = FedGR(**SGD)
    losses = torch.cat([torch.rand(300, generator=CTX.rng("a")), 3 + torch.rand(200, generator=CTX.rng("b"))])
    state = method.init(toy.network("mlp"))
    total = replace(method.zero_update(state), weight=1.0, aux={"histogram": torch.histc(losses, 64, 0, 10)})
    found = method.server_update(state, total, CTX).aux["mixture"]
    expected = gaussians.fit(losses.tolist(), None, 20, 0.08)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0.05, atol=0.05)


def test_a_sample_without_a_pseudo_label_has_no_share_in_a_client_that_is_not_trusted() -> None:
    log_probs = torch.randn(3, 4, generator=CTX.rng("a")).log_softmax(dim=1)
    given, none = torch.tensor([0, 1, 2]), torch.full((3,), -1)
    assert float(refined_loss(log_probs, given, none, torch.ones(3), trusted=False)) == 0
    assert float(refined_loss(log_probs, given, none, torch.ones(3), trusted=True)) > 0


# --- FedCorr ---


def fedcorr_state(trained: ServerState, noisy: bool) -> ServerState:
    mean = 0.0 if noisy else 50.0  # dimensions of clean clients; the noisy ones lie apart by 30
    rows = [[5.0, 5.0, 5 * m, 5 * (m**2 + 4.0)] for m in (mean, mean + 30)]
    return ServerState(trained.model, {"mixture": torch.tensor(rows)})


def test_fedcorrs_first_stage_is_its_slow_twin(trained: ServerState) -> None:
    method, state = FedCorr(**SGD, start=9, neighbours=4), fedcorr_state(trained, noisy=True)
    rows = [[5.0, 5.0, 5 * m, 5 * (m**2 + 4.0)] for m in (-30.0, 0.0)]  # noisy clients have dimensions around 0
    state = ServerState(state.model, {"mixture": torch.tensor(rows)})
    net = net_of(state)
    predictions = naive.all_probabilities(net, IMAGES)
    naive.mixup_training(net, LABELS, mixed_epochs(method, list(range(len(LABELS)))), RATES, 0.0, pull=5 * 0.3)
    kept = {"labels": DATA.labels, "dimension": torch.tensor([1.0]), "visits": torch.tensor([1.0])}
    kept |= {"noise": torch.tensor([0.3]), "fixed": torch.zeros(1)}
    update, after = run_client(method, toy.network("mlp"), state, kept, DATA, CTX)
    toy.assert_same_change(update.model, net.state_dict(), state.model, len(DATA))
    own = naive.all_probabilities(net, IMAGES)
    score = sum(gaussians.lid(own, 4)) / len(own)
    assert float(after["dimension"]) == pytest.approx((1 + score) / 2, rel=2e-2)
    losses = naive.cross_entropies(own, LABELS)
    mixture = gaussians.fit(losses, None, 50, 0.02)
    level = sum(gaussians.posterior(loss, mixture)[0] < 0.5 for loss in losses) / len(losses)
    assert float(after["noise"]) == pytest.approx(level)
    assert after["labels"].tolist() == naive.fedcorr_relabel(losses, level, 0.5, predictions, LABELS, 0.5)
    assert after["labels"].tolist() != LABELS


def test_a_clean_client_keeps_its_labels(trained: ServerState) -> None:
    method = FedCorr(**SGD, start=9, neighbours=4)
    _, after = run_client(method, toy.network("mlp"), fedcorr_state(trained, noisy=False), {}, DATA, CTX)
    assert after["labels"].tolist() == LABELS
    assert float(after["noise"]) == 0


def test_in_the_second_stage_noisy_clients_stand_aside(trained: ServerState) -> None:
    method, state = FedCorr(**SGD, start=2, last_stage=9), fedcorr_state(trained, noisy=False)
    for level, aside in ((0.05, False), (0.3, True)):
        update, _ = run_client(method, toy.network("mlp"), state, {"noise": torch.tensor([level])}, DATA, CTX)
        assert (update.weight < 1) == aside
        assert (sum(float(value.abs().sum()) for value in update.model.values()) == 0) == aside
    zero = method.zero_update(state)
    after = method.server_update(state, zero + update, CTX)
    assert digest(after.model) == digest(state.model)  # only clients that stood aside


def test_the_last_stage_corrects_a_noisy_clients_labels_once(trained: ServerState) -> None:
    method, state = FedCorr(**SGD, start=2, last_stage=4), fedcorr_state(trained, noisy=False)
    net = net_of(state)
    _, after = run_client(method, toy.network("mlp"), state, {"noise": torch.tensor([0.4])}, DATA, CTX)
    sure, guess = predict_client(net, DATA)[0].softmax(dim=1).max(dim=1)
    assert after["labels"].tolist() == torch.where(sure > 0.5, guess, DATA.labels).tolist()
    _, again = run_client(method, toy.network("mlp"), state, {**after, "labels": DATA.labels}, DATA, CTX)
    assert again["labels"].tolist() == LABELS


def test_relabelling_needs_confidence_and_leave() -> None:
    probs = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.9, 0.1]])
    found = relabelled(torch.tensor([1, 1, 1]), probs, 0.7, torch.tensor([True, True, False]))
    assert found.tolist() == [0, 1, 1]


def test_the_published_split_of_clients_is_by_their_dimension() -> None:
    dimensions = torch.cat([2 + 0.1 * torch.randn(12, 1, generator=CTX.rng("a")), torch.full((5, 1), 5.0)]).numpy()
    assert split_clients(dimensions).tolist() == [False] * 12 + [True] * 5
