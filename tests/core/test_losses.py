import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl.core import losses
from tests.core.draws import Batch, batch, order, real
from tests.naive import equations

FORMS = {
    "sum": equations.centroid_loss_sum,
    "sample": equations.centroid_loss_per_sample,
    "dimension": equations.centroid_loss_per_dimension,
}


@st.composite
def predictions(draw: st.DrawFn):
    """Logits (n, K), given labels (n,), pseudo-labels (n,), soft pseudo-labels (n, K), mask (n,)."""
    samples, classes = draw(st.integers(1, 6)), draw(st.integers(2, 4))
    rows = st.lists(st.floats(-10, 10), min_size=classes, max_size=classes)
    names = st.lists(st.integers(0, classes - 1), min_size=samples, max_size=samples)
    return (
        draw(st.lists(rows, min_size=samples, max_size=samples)),
        draw(names),
        draw(names),
        [equations.softmax(draw(rows)) for _ in range(samples)],
        draw(st.lists(st.booleans(), min_size=samples, max_size=samples)),
    )


def log_probs(logits):
    return real(logits).log_softmax(dim=1)


@given(drawn=predictions())
def test_cross_entropy_takes_classes_and_distributions(drawn):
    logits, labels, _, soft, _ = drawn
    classes = len(logits[0])
    hard = losses.cross_entropy(log_probs(logits), torch.tensor(labels))
    naive = [equations.cross_entropy(row, equations.one_hot(y, classes)) for row, y in zip(logits, labels, strict=True)]
    assert_close(hard, real(naive))
    naive = [equations.cross_entropy(row, target) for row, target in zip(logits, soft, strict=True)]
    assert_close(losses.cross_entropy(log_probs(logits), real(soft)), real(naive))


@pytest.mark.parametrize("soft", [False, True], ids=["hard pseudo-labels", "soft pseudo-labels"])
@given(drawn=predictions())
def test_classification_is_eq_1(soft, drawn):
    logits, labels, hard_guess, soft_guess, mask = drawn
    classes, scores = len(logits[0]), log_probs(logits)
    guess = real(soft_guess) if soft else torch.tensor(hard_guess)
    fast = losses.classification(
        losses.cross_entropy(scores, torch.tensor(labels)), losses.cross_entropy(scores, guess), torch.tensor(mask)
    )
    given_rows = [equations.one_hot(label, classes) for label in labels]
    guess_rows = soft_guess if soft else [equations.one_hot(label, classes) for label in hard_guess]
    assert_close(fast, real(equations.classification_loss(logits, given_rows, guess_rows, mask)))


@given(drawn=predictions())
def test_a_full_mask_believes_the_given_labels_and_an_empty_one_the_pseudo_labels(drawn):
    logits, labels, guess, _, mask = drawn
    scores = log_probs(logits)
    given_loss = losses.cross_entropy(scores, torch.tensor(labels))
    guess_loss = losses.cross_entropy(scores, torch.tensor(guess))
    full = torch.ones(len(mask), dtype=torch.bool)
    assert torch.equal(losses.classification(given_loss, guess_loss, full), given_loss)
    assert torch.equal(losses.classification(given_loss, guess_loss, ~full), guess_loss)


def test_an_infinite_loss_that_the_mask_leaves_out_does_not_spoil_the_rest():
    infinite, fine = torch.tensor([math.inf]), torch.tensor([2.0])
    assert losses.classification(infinite, fine, torch.tensor([False])).tolist() == [2.0]
    assert losses.classification(fine, infinite, torch.tensor([True])).tolist() == [2.0]


@pytest.mark.parametrize("form", FORMS)
@given(drawn=batch())
def test_centroid_loss_is_eq_5(form, drawn: Batch):
    fast = losses.centroid(
        real(drawn.features), real(drawn.centroids), torch.tensor(drawn.labels), torch.tensor(drawn.keep), form
    )
    naive = FORMS[form](drawn.features, drawn.centroids, drawn.labels, drawn.keep)
    assert float(fast) == pytest.approx(naive, rel=1e-12)


def test_centroid_loss_worked_by_hand():
    features = torch.tensor([[1.0, 2.0], [0.0, 0.0], [7.0, 7.0]])
    centroids = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
    labels, mask = torch.tensor([0, 1, 0]), torch.tensor([True, True, False])
    # 1 + 4 to the first, 9 + 16 to the second, the third is not confident: 30 over 3 samples of 2 dimensions
    found = [float(losses.centroid(features, centroids, labels, mask, form)) for form in ("sum", "sample", "dimension")]
    assert found == [30.0, 10.0, 5.0]


@pytest.mark.parametrize("form", FORMS)
@given(drawn=batch())
def test_permuting_samples_leaves_the_centroid_loss_alone(form, drawn: Batch):
    shuffle = order(len(drawn.labels))
    features, labels, mask = real(drawn.features), torch.tensor(drawn.labels), torch.tensor(drawn.keep)
    straight = losses.centroid(features, real(drawn.centroids), labels, mask, form)
    assert_close(
        losses.centroid(features[shuffle], real(drawn.centroids), labels[shuffle], mask[shuffle], form), straight
    )


@pytest.mark.parametrize(("form", "share"), [("sum", 1.0), ("sample", 1 / 3), ("dimension", 1 / 6)])
def test_the_centroid_loss_pulls_confident_features_and_leaves_the_centroids(form, share):
    features = torch.tensor([[1.0, 2.0], [0.0, 0.0], [7.0, 7.0]], requires_grad=True)
    centroids = torch.tensor([[0.0, 0.0], [3.0, 4.0]], requires_grad=True)
    loss = losses.centroid(features, centroids, torch.tensor([0, 1, 0]), torch.tensor([True, True, False]), form)
    to_features, to_centroids = torch.autograd.grad(loss, (features, centroids), allow_unused=True)
    assert_close(to_features, share * torch.tensor([[2.0, 4.0], [-6.0, -8.0], [0.0, 0.0]]))  # 2 (F(x) - f)
    assert to_centroids is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("samples", [1, 3])
def test_the_centroid_loss_of_zeros_is_zero(form, samples):
    zeros = torch.zeros(samples, 2)
    labels, mask = torch.zeros(samples, dtype=torch.long), torch.ones(samples, dtype=torch.bool)
    assert float(losses.centroid(zeros, torch.zeros(3, 2), labels, mask, form)) == 0.0


@given(drawn=predictions())
def test_entropy_is_minus_p_log_p(drawn):
    logits = drawn[0]
    found = losses.entropy(log_probs(logits))
    assert_close(found, real([equations.entropy(row) for row in logits]))
    assert (found >= -1e-12).all()
    assert (found <= math.log(len(logits[0])) + 1e-12).all()


def test_entropy_is_highest_for_an_open_mind_and_zero_for_a_made_up_one():
    probabilities = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]])
    assert losses.entropy(probabilities.log()).tolist() == pytest.approx([math.log(4), 0.0])


def test_entropy_of_extreme_logits_is_finite_with_its_gradient():
    logits = torch.tensor([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0]], requires_grad=True)
    found = losses.entropy(logits.log_softmax(dim=1))
    found.sum().backward()
    assert torch.isfinite(found).all()
    assert torch.isfinite(logits.grad).all()


def test_a_step_against_the_entropy_makes_the_prediction_surer():
    logits = torch.tensor([[0.5, 0.0]], requires_grad=True)
    losses.entropy(logits.log_softmax(dim=1)).sum().backward()
    assert logits.grad[0, 0] < 0 < logits.grad[0, 1]


@given(drawn=predictions())
def test_permuting_samples_permutes_the_per_sample_losses(drawn):
    logits, labels, _, _, _ = drawn
    scores, targets, shuffle = log_probs(logits), torch.tensor(labels), order(len(labels))
    assert torch.equal(losses.entropy(scores[shuffle]), losses.entropy(scores)[shuffle])
    hard = losses.cross_entropy(scores, targets)
    assert torch.equal(losses.cross_entropy(scores[shuffle], targets[shuffle]), hard[shuffle])


@given(t=st.integers(1, 100), start=st.floats(0, 50), length=st.floats(0, 50))
def test_ramp_is_the_schedule(t, start, length):
    assert losses.ramp(t, start, length) == pytest.approx(equations.ramp(t, start, length), abs=1e-12)


@given(start=st.floats(0, 20), length=st.floats(0, 20))
def test_ramp_rises_from_0_to_1_and_never_falls(start, length):
    values = [losses.ramp(t, start, length) for t in range(60)]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert values[-1] == 1.0


def test_a_ramp_of_no_length_is_a_step():
    assert [losses.ramp(t, start=3, length=0) for t in (2, 3, 4)] == [0.0, 0.0, 1.0]
