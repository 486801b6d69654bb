"""FedLSR, FedFixer, FedNoRo and FedELC against their slow twins, and what each of them promises."""

from dataclasses import replace

import pytest
import torch

from rofl.core.rng import numpy_generator
from rofl.core.tensors import digest
from rofl.methods import RoundContext, ServerState
from rofl.methods.fedelc import FedElc
from rofl.methods.fedfixer import FedFixer, confident_loss, pick_clean
from rofl.methods.fedlsr import FedLsr, jensen_shannon, mixed_log_probs
from rofl.methods.fednoro import FedNoRo, losses_by_class, sigmoid_ramp
from rofl.methods.views import strong_view
from rofl.methods.weights import load_weights
from rofl.simulation.client import run_client
from tests.methods import toy
from tests.naive import robust_updates as naive

DATA = toy.noisy([row for row in range(24) if row % toy.CLASSES != 3])  # one class is absent
LABELS = DATA.labels.tolist()
SGD = {"lr": 0.1, "momentum": 0.5, "weight_decay": 1e-4, "batch": 8, "epochs": 2}
RATES = (0.1, 0.5, 1e-4)
CTX = RoundContext(5, toy.SEED, client=1)


def begun(method) -> ServerState:
    return method.init(toy.network("mlp"))


def twin(server_state: ServerState):
    net = toy.network("mlp")
    load_weights(net, server_state.model)
    return net


# --- FedLSR ---


def test_fedlsr_is_its_slow_twin() -> None:
    method = FedLsr(**SGD, horizon=50)  # round 5 of 50: gamma has half risen
    state = begun(method)
    order, augment, views = CTX.rng("batches"), CTX.rng("augment"), CTX.rng("views")
    shares = numpy_generator(CTX.seed, CTX.index, CTX.client, "views")
    epochs = []
    for _ in range(method.epochs):
        drawn = []
        for rows in DATA.batches(method.batch, order):
            images = DATA.inputs(rows, augment)
            drawn.append((rows.tolist(), images, strong_view(images, views), float(shares.uniform())))
        epochs.append(drawn)
    net = twin(state)
    naive.fedlsr(net, LABELS, epochs, gamma=0.2, lambda_e=0.3, sharpen=3.0, sgd=RATES)
    update, kept = run_client(method, toy.network("mlp"), state, {}, DATA, CTX)
    toy.assert_same_change(update.model, net.state_dict(), state.model, len(DATA))
    assert kept == {}


def test_the_loss_of_fedlsr_is_that_of_probabilities_not_of_logits() -> None:
    """Public code hands probabilities to a cross-entropy of logits, which is never near zero."""
    sure = torch.tensor([[30.0, 0.0, 0.0]])
    assert float(-mixed_log_probs(sure, sure, 0.5)[0, 0]) == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(
        mixed_log_probs(torch.zeros(1, 2), torch.tensor([[0.0, 1.0]]).log(), 0.5).exp(), torch.tensor([[0.1, 0.9]])
    )


def test_the_divergence_of_two_views_is_symmetric_and_bounded() -> None:
    first, second = torch.randn(6, 4, generator=CTX.rng("a")), torch.randn(6, 4, generator=CTX.rng("b"))
    torch.testing.assert_close(jensen_shannon(first, second), jensen_shannon(second, first))
    assert bool((jensen_shannon(5 * first, 5 * second) <= 0.6932).all())
    torch.testing.assert_close(jensen_shannon(first, first), torch.zeros(6), rtol=0, atol=1e-6)


def test_a_strong_view_hides_a_part_of_each_image_and_rows_of_a_table_keep_all() -> None:
    images = torch.ones(5, 3, 12, 12)
    view = strong_view(images, CTX.rng("views"))
    hidden = (view == 0).all(dim=1).double().mean(dim=(1, 2))
    assert bool((hidden > 0.02).all())
    assert bool((hidden < 0.2).all())
    table = strong_view(torch.ones(5, 7, 1, 1), CTX.rng("views"))
    assert bool((table > 0.5).all())


# --- FedFixer ---


@pytest.mark.parametrize("index", [2, 5, 9])
def test_fedfixer_is_its_slow_twin(index: int) -> None:
    gentle = {**SGD, "lr": 0.02, "epochs": 1}  # larger steps end on either side of a kink
    method, ctx = FedFixer(**gentle, inner_steps=2, beta_ramp=4), RoundContext(index, toy.SEED, client=1)
    state = begun(method)
    net = twin(state)
    beta = {2: 0.0, 5: 2.0 * 3 / 4, 9: 2.0}[index]
    clean = naive.fedfixer(
        net,
        twin(state),
        LABELS,
        toy.drawn_epochs(method, DATA, ctx),
        index >= 3,
        beta,
        2,
        0.1,
        0.15,
        (0.02, *RATES[1:]),
    )
    update, _ = run_client(method, toy.network("mlp"), state, {}, DATA, ctx)
    assert update.weight == pytest.approx(max(clean, 1e-3))
    assert (clean == len(DATA)) == (index < 3)
    for name, before in state.model.items():
        expected = update.weight * (net.state_dict()[name] - before)
        torch.testing.assert_close(update.model[name], expected, rtol=2e-3, atol=2e-3)


def test_a_batch_without_a_clean_sample_has_a_loss_of_zero() -> None:
    """In public code it is the mean of nothing, NaN."""
    logits = torch.randn(3, 4, generator=CTX.rng("a"), requires_grad=True)
    loss = confident_loss(logits, torch.tensor([0, 1, 2]), torch.zeros(3, dtype=torch.bool), beta=2.0)
    loss.backward()
    assert float(loss.detach()) == 0
    assert logits.grad is not None
    assert float(logits.grad.abs().sum()) == 0


def test_clean_is_what_is_more_probable_than_its_rivals() -> None:
    logits = torch.tensor([[3.0, 0, 0, 0], [3.0, 0, 0, 0], [0.0, 0, 0, 0]])
    assert pick_clean(logits, torch.tensor([0, 1, 2]), select=True).tolist() == [True, False, True]
    assert pick_clean(logits, torch.tensor([0, 1, 2]), select=False).tolist() == [True] * 3


# --- FedNoRo ---


def noisy_state(method: FedNoRo, noisy: bool) -> ServerState:
    """A server state that takes the client for noisy, or for clean."""
    state = begun(method)
    if method.share == "clients":
        return replace(state, aux={**state.aux, "client_noisy": torch.full((method.clients,), float(noisy))})
    low, high = (0.0, 0.2) if noisy else (1.4, 9.0)  # losses of the two kinds of clients; this one's are about 1.4
    row = [[5.0, *[5.0] * 4, *[5 * mean] * 4, *[5 * (mean**2 + 0.3)] * 4] for mean in (low, high)]
    return replace(state, aux={**state.aux, "mixture": torch.tensor(row)})


@pytest.mark.parametrize("share", ["sums", "clients"])
@pytest.mark.parametrize("noisy", [False, True], ids=["clean", "noisy"])
def test_fednoro_is_its_slow_twin(noisy: bool, share: str) -> None:
    method = FedNoRo(**SGD, start=3, ramp=4, share=share).with_clients(3)
    state, net = noisy_state(method, noisy), twin(begun(method))
    epochs = toy.drawn_epochs(method, DATA, CTX)
    if noisy:
        weight = 0.8 * sigmoid_ramp(5, 3, 4)
        naive.fednoro(net, twin(state), LABELS, toy.CLASSES, epochs, weight, 0.8, RATES)
    else:
        naive.adjusted(net, LABELS, toy.CLASSES, epochs, RATES)
    update, _ = run_client(method, toy.network("mlp"), state, {}, DATA, CTX)
    assert update.metrics["noisy_clients"] == update.metrics["samples"] * noisy
    for name, before in state.model.items():
        expected = update.weight * (net.state_dict()[name] - before)
        torch.testing.assert_close(update.model[name], expected, rtol=2e-3, atol=2e-3)


def test_until_the_start_nobody_is_noisy() -> None:
    method = FedNoRo(**SGD, start=6)
    update, _ = run_client(method, toy.network("mlp"), noisy_state(method, True), {}, DATA, CTX)
    assert update.metrics["noisy_clients"] == 0


def test_the_vector_of_a_client_is_its_mean_loss_by_class() -> None:
    logits = torch.randn(6, 3, generator=CTX.rng("a"))
    labels = torch.tensor([0, 0, 1, 1, 1, 0])
    each = -logits.log_softmax(dim=1)[torch.arange(6), labels]
    torch.testing.assert_close(
        losses_by_class(logits, labels),
        torch.stack([each[labels == 0].mean(), each[labels == 1].mean(), torch.zeros(())]),
    )


def test_by_sums_a_noisy_client_counts_for_less_and_the_server_keeps_the_mean_distance() -> None:
    method = FedNoRo(**SGD, start=2)
    state = noisy_state(method, True)
    update, _ = run_client(method, toy.network("mlp"), state, {}, DATA, CTX)
    assert update.weight == pytest.approx(len(DATA) * 0.3679, rel=1e-3)  # nothing is known about distances
    after = method.server_update(state, update, RoundContext(5, toy.SEED))
    assert float(after.aux["noisy_distance"]) > 0
    again, _ = run_client(
        method, toy.network("mlp"), replace(state, aux=after.aux | {"mixture": state.aux["mixture"]}), {}, DATA, CTX
    )
    assert again.weight == pytest.approx(len(DATA) * 0.3679, rel=1e-3)  # as far as the mean


def test_as_published_the_server_weighs_by_the_nearest_clean_model() -> None:
    method = FedNoRo(**SGD, start=2, share="clients", clients=3)
    clean_state, noisy = noisy_state(method, False), noisy_state(method, True)
    updates = [
        run_client(method, toy.network("mlp"), state, {}, data, RoundContext(5, toy.SEED, client))[0]
        for client, (state, data) in enumerate(
            [(clean_state, toy.noisy(range(24, 40))), (noisy, DATA), (noisy, toy.noisy(range(48, 60), ratio=0.9))]
        )
    ]
    after = method.server_update(clean_state, updates[0] + updates[1] + updates[2], RoundContext(5, toy.SEED))
    models = [{n: v / u.weight for n, v in u.model.items()} for u in updates]
    distances = [sum(float((m[n] - models[0][n]).norm()) for n in m) for m in models]
    weights = [
        u.weight * float(torch.exp(torch.tensor(-d / max(distances)))) for u, d in zip(updates, distances, strict=True)
    ]
    for name, before in clean_state.model.items():
        expected = before + sum(w * m[name] for w, m in zip(weights, models, strict=True)) / sum(weights)
        torch.testing.assert_close(after.model[name], expected, rtol=1e-3, atol=1e-5)


# --- FedELC ---


def test_fedelc_is_its_slow_twin() -> None:
    method = FedElc(**SGD, start=3, label_lr=20.0)
    state, net = noisy_state(method, True), twin(begun(method))
    given = [[10.0 * (c == label) for c in range(toy.CLASSES)] for label in LABELS]
    epochs = toy.drawn_epochs(method, DATA, CTX)
    logits = naive.fedelc(net, LABELS, given, epochs, alpha=0.5, beta=0.2, label_lr=20.0, sgd=RATES)
    update, kept = run_client(method, toy.network("mlp"), state, {}, DATA, CTX)
    for name, before in state.model.items():
        expected = update.weight * (net.state_dict()[name] - before)
        torch.testing.assert_close(update.model[name], expected, rtol=2e-3, atol=2e-3)
    net.eval()
    with torch.no_grad():
        predicted = net(DATA.inputs(torch.arange(len(DATA))))[0].softmax(dim=1)
    expected = 10 * (torch.tensor(logits).softmax(dim=1) + predicted) / 2
    torch.testing.assert_close(kept["label_logits"], expected, rtol=2e-3, atol=2e-3)


def test_a_clean_client_of_fedelc_keeps_its_labels_and_trains_as_fednoro_does() -> None:
    state = noisy_state(FedElc(**SGD, start=3), False)
    update, kept = run_client(FedElc(**SGD, start=3), toy.network("mlp"), state, {}, DATA, CTX)
    other, _ = run_client(FedNoRo(**SGD, start=3), toy.network("mlp"), state, {}, DATA, CTX)
    assert digest(update.model) == digest(other.model)
    assert kept["label_logits"].argmax(dim=1).tolist() == LABELS
