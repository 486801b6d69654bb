"""FedAvg's losses and FedProx against their slow twin, and what each of them promises."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rofl
from rofl.core import losses
from rofl.core.losses import cross_entropy
from rofl.core.rng import numpy_generator
from rofl.core.tensors import digest
from rofl.errors import UserError
from rofl.methods import FedAvg, FedProx, RoundContext
from rofl.methods.objective import Mixup
from rofl.simulation.client import run_client
from tests.methods import toy
from tests.naive.plain_losses import local_update

DATA = toy.noisy(range(20))
CTX = RoundContext(3, toy.SEED, client=1)
CASES = {
    "ce": {},
    "gce": {"loss": "gce"},
    "sce": {"loss": "sce"},
    "elr": {"loss": "elr"},
    "smoothed": {"label_smoothing": 0.1},
    "mixup": {"mixup": 1.0},
    "gce and mixup": {"loss": "gce", "mixup": 0.4},
    "prox": {"mu": 0.5},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_a_clients_round_is_that_of_the_slow_twin(settings) -> None:
    method = toy.build("fedprox" if "mu" in settings else "plain", **settings)
    net = toy.network("mlp")
    begun = method.init(net)
    remembered = torch.rand(len(DATA), toy.CLASSES, generator=CTX.rng("targets")) / toy.CLASSES
    epochs = toy.drawn_epochs(method, DATA, CTX)
    order, shares = CTX.rng("mixup"), numpy_generator(CTX.seed, CTX.index, CTX.client, "mixup")
    mixes = [
        (torch.randperm(len(rows), generator=order).tolist(), float(shares.beta(method.mixup, method.mixup)))
        for batches in epochs
        for rows, _ in batches
        if method.mixup
    ]
    targets = remembered.double().tolist()
    update, state = run_client(method, net, begun, {"targets": remembered}, DATA, CTX)
    twin = toy.network("mlp")
    local_update(
        twin,
        DATA.labels.tolist(),
        epochs,
        mixes,
        targets,
        loss=method.loss,
        lr=method.lr,
        momentum=method.momentum,
        weight_decay=method.weight_decay,
        smoothing=method.label_smoothing,
        mu=settings.get("mu", 0.0),
    )
    toy.assert_same_change(update.model, twin.state_dict(), begun.model, len(DATA))
    if method.loss == "elr":
        torch.testing.assert_close(state["targets"], torch.tensor(targets).float(), rtol=1e-3, atol=1e-4)
    else:
        assert state == {}


logits = st.lists(st.lists(st.floats(-5, 5), min_size=4, max_size=4), min_size=1, max_size=6).map(torch.tensor)


@given(logits)
def test_generalized_cross_entropy_lies_between_its_two_limits(scores) -> None:
    log_probs, labels = scores.double().log_softmax(dim=1), torch.zeros(len(scores), dtype=torch.long)
    near_zero = losses.generalized_cross_entropy(log_probs, labels, q=1e-6)
    torch.testing.assert_close(near_zero, cross_entropy(log_probs, labels), rtol=1e-3, atol=1e-3)
    absolute = losses.generalized_cross_entropy(log_probs, labels, q=1.0)
    torch.testing.assert_close(absolute, 1 - log_probs.exp()[:, 0])
    between = losses.generalized_cross_entropy(log_probs, labels, q=0.5)
    assert bool(((absolute - 1e-9 <= between) & (between <= near_zero + 1e-6)).all())


@given(logits)
def test_the_reverse_part_of_symmetric_cross_entropy_sums_to_a_constant_over_labels(scores) -> None:
    """What makes it robust to symmetric noise: over all labels that a sample might have, it is always the same."""
    log_probs = scores.double().log_softmax(dim=1)
    every = [
        losses.symmetric_cross_entropy(log_probs, torch.full((len(scores),), label), 0.0, 1.0) for label in range(4)
    ]
    torch.testing.assert_close(
        torch.stack(every).sum(dim=0), torch.full((len(scores),), -3 * math.log(1e-4), dtype=torch.float64)
    )


def test_a_memory_that_agrees_pulls_and_one_that_does_not_resists() -> None:
    scores = torch.zeros(1, 4, requires_grad=True)
    probs = losses.clipped_probs(scores.log_softmax(dim=1))
    losses.early_learning(probs, torch.tensor([[0.0, 0.9, 0.0, 0.0]])).sum().backward()
    assert scores.grad is not None
    assert scores.grad[0].argmin() == 1  # the loss falls most where the memory is


def test_mixup_keeps_the_mean_of_a_batch_and_mixes_nothing_at_zero() -> None:
    inputs = torch.rand(7, 1, 2, 2, generator=CTX.rng("inputs"))
    mixed, partner, share = Mixup(1.0, CTX)(inputs)
    assert sorted(partner.tolist()) == list(range(7))
    assert 0 < share < 1
    torch.testing.assert_close(mixed, share * inputs + (1 - share) * inputs[partner])
    torch.testing.assert_close(mixed.mean(dim=0), inputs.mean(dim=0))
    same, partner, share = Mixup(0.0, CTX)(inputs)
    assert same is inputs
    assert (partner.tolist(), share) == (list(range(7)), 1.0)


def test_a_pull_of_nothing_is_fedavg_and_a_strong_one_holds_the_client_back() -> None:
    begun = FedAvg().init(toy.network())
    plain = toy.train(toy.build("plain"), begun, DATA, 1)
    free = toy.train(toy.build("fedprox", mu=0.0), begun, DATA, 1)
    held = toy.train(toy.build("fedprox", mu=3.0), begun, DATA, 1)
    names = [name for name, _ in toy.network().named_parameters()]
    assert digest(free.model) == digest(plain.model)
    moved = [sum(float(update.model[name].square().sum()) for name in names) for update in (plain, held)]
    assert moved[1] < 0.5 * moved[0]
    assert isinstance(toy.build("fedprox"), FedProx)


@pytest.mark.parametrize("settings", [{"loss": "gce", "label_smoothing": 0.1}, {"loss": "elr", "mixup": 1.0}])
def test_options_that_do_not_fit_together_are_refused_in_one_sentence(settings) -> None:
    with pytest.raises(UserError, match=r"^method: (label_smoothing|mixup) is .*\. Try: "):
        rofl.preset("digits", method="plain", **{f"method__{key}": value for key, value in settings.items()})


def test_the_cautious_form_remembers_and_does_not_listen() -> None:
    method = toy.build("plain", loss="elr")
    begun = method.init(toy.network())
    careful, state = run_client(method.cautious(), toy.network(), begun, {}, DATA, CTX)
    assert digest(careful.model) == digest(toy.train(toy.build("plain"), begun, DATA, 3, client=1).model)
    assert state["targets"].shape == (len(DATA), toy.CLASSES)
    assert toy.build("plain").cautious() == toy.build("plain")
