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
def test_divergence_is_the_kullback_leibler_sum_for_soft_and_hard_labels(drawn):
    logits, labels, _, soft, _ = drawn
    hard = [equations.one_hot(label, len(logits[0])) for label in labels]
    for targets in (soft, hard):
        found = losses.divergence(real(targets), log_probs(logits))
        naive = [equations.divergence(target, row) for target, row in zip(targets, logits, strict=True)]
        assert_close(found, real(naive), rtol=1e-7, atol=1e-9)
        assert (found >= -1e-12).all()


@given(drawn=predictions())
def test_divergence_is_zero_from_itself_and_the_cross_entropy_less_the_labels_entropy(drawn):
    logits, labels, _, soft, _ = drawn
    scores = log_probs(logits)
    assert_close(losses.divergence(scores.exp(), scores), torch.zeros(len(logits), dtype=torch.float64))
    own_entropy = losses.entropy(real(soft).log())
    assert_close(losses.divergence(real(soft), scores), losses.cross_entropy(scores, real(soft)) - own_entropy)
    hard = real([equations.one_hot(label, len(logits[0])) for label in labels])
    assert_close(losses.divergence(hard, scores), losses.cross_entropy(scores, torch.tensor(labels)))


def test_divergence_worked_by_hand():
    labels, predicted = torch.tensor([[0.75, 0.25], [1.0, 0.0]]), torch.tensor([[0.5, 0.5], [0.25, 0.75]])
    expected = [0.75 * math.log(1.5) + 0.25 * math.log(0.5), math.log(4)]
    assert losses.divergence(labels, predicted.log()).tolist() == pytest.approx(expected)


def test_divergence_moves_the_prediction_towards_the_label():
    logits = torch.tensor([[0.3, 0.3, 0.3]], requires_grad=True)
    losses.divergence(torch.tensor([[0.6, 0.4, 0.0]]), logits.log_softmax(dim=1)).sum().backward()
    assert_close(logits.grad, torch.tensor([[1 / 3 - 0.6, 1 / 3 - 0.4, 1 / 3]]))  # s - y


@given(drawn=predictions())
def test_prior_is_the_divergence_of_the_mean_prediction_from_equal_shares(drawn):
    logits = drawn[0]
    found = float(losses.prior(log_probs(logits)))
    assert found == pytest.approx(equations.prior(logits), rel=1e-9, abs=1e-12)
    assert found >= -1e-12


@given(drawn=predictions())
def test_permuting_samples_permutes_the_divergence_and_leaves_the_prior_alone(drawn):
    logits, _, _, soft, _ = drawn
    scores, shuffle = log_probs(logits), order(len(logits))
    straight = losses.divergence(real(soft), scores)
    assert torch.equal(losses.divergence(real(soft)[shuffle], scores[shuffle]), straight[shuffle])
    assert_close(losses.prior(scores[shuffle]), losses.prior(scores), rtol=1e-7, atol=1e-12)


@given(drawn=predictions())
def test_permuting_classes_or_showing_samples_twice_leaves_the_prior_alone(drawn):
    scores = log_probs(drawn[0])
    straight = losses.prior(scores)
    assert_close(losses.prior(scores[:, order(scores.shape[1])]), straight, rtol=1e-7, atol=1e-12)
    assert_close(losses.prior(torch.cat([scores, scores])), straight, rtol=1e-7, atol=1e-12)


def test_prior_is_zero_where_all_classes_are_in_equal_use_and_grows_with_one_class():
    even = torch.tensor([[0.9, 0.1], [0.1, 0.9]])
    assert float(losses.prior(even.log())) == pytest.approx(0.0, abs=1e-6)
    one_sided = [float(losses.prior(torch.tensor([[1 - share, share]] * 2).log())) for share in (0.5, 0.3, 0.1, 0.01)]
    assert one_sided == sorted(one_sided)
    assert one_sided[2] == pytest.approx(-0.5 * math.log(0.9 * 0.1) - math.log(2))


def test_divergence_and_prior_of_extreme_logits_are_finite_with_their_gradients():
    logits = torch.tensor([[1e4, -1e4, 0.0], [1e4, 0.0, 0.0]], requires_grad=True)
    log_s = logits.log_softmax(dim=1)
    found = losses.divergence(torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]), log_s).sum() + losses.prior(log_s)
    found.backward()
    assert torch.isfinite(found)
    assert torch.isfinite(logits.grad).all()


@given(drawn=predictions())
def test_permuting_samples_permutes_the_per_sample_losses(drawn):
    logits, labels, _, _, _ = drawn
    scores, targets, shuffle = log_probs(logits), torch.tensor(labels), order(len(labels))
    assert torch.equal(losses.entropy(scores[shuffle]), losses.entropy(scores)[shuffle])
    hard = losses.cross_entropy(scores, targets)
    assert torch.equal(losses.cross_entropy(scores[shuffle], targets[shuffle]), hard[shuffle])


@given(t=st.integers(1, 100), start=st.floats(0, 50), length=st.floats(0, 50))
def test_ramp_is_the_schedule(t, start, length):
    assert losses.linear_ramp(t, start, length) == pytest.approx(equations.ramp(t, start, length), abs=1e-12)


@given(start=st.floats(0, 20), length=st.floats(0, 20))
def test_ramp_rises_from_0_to_1_and_never_falls(start, length):
    values = [losses.linear_ramp(t, start, length) for t in range(60)]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert values[-1] == 1.0


def test_a_ramp_of_no_length_is_a_step():
    assert [losses.linear_ramp(t, start=3, length=0) for t in (2, 3, 4)] == [0.0, 0.0, 1.0]
