"""The samples whose labels look wrong, against tests/naive/posterior.py."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rofl.audit import (
    Suspects,
    average_precision,
    centroid_disagrees,
    detection,
    discount_memorized,
    estimate_matrix,
    find_suspects,
    label_posterior,
    memorized_share,
    noise_matrix,
    transition_counts,
)
from rofl.core import centroids as c
from rofl.core import noise
from tests.audit.draws import distributions, networks
from tests.core.draws import Batch, batch, order, real
from tests.naive import posterior
from tests.naive.equations import Matrix

Case = tuple[list[int], Matrix, Matrix]
NEAR = {"rel": 1e-9, "abs": 1e-12}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Labels, probabilities and a matrix."""
    samples, classes = draw(st.integers(1, 7)), draw(st.integers(2, 4))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=samples, max_size=samples))
    return labels, draw(distributions(samples, classes)), draw(distributions(classes, classes))


def found(labels: list[int], probabilities: Matrix, matrix: Matrix | None = None) -> Suspects:
    return find_suspects(torch.tensor(labels), real(probabilities), None if matrix is None else real(matrix))


def same(one: Suspects, other: Suspects) -> None:
    assert torch.equal(one.flagged, other.flagged)
    assert torch.equal(one.suggested, other.suggested)
    torch.testing.assert_close(one.score, other.score, rtol=1e-9, atol=1e-12)


# --- the twin ---


@given(cases())
def test_every_sample_is_judged_by_bayes_rule(case: Case) -> None:
    labels, probabilities, matrix = case
    suspects = found(*case)
    for place, (label, each) in enumerate(zip(labels, probabilities, strict=True)):
        better, score = posterior.judge(each, label, matrix)
        assert suspects.suggested[place].item() == better
        assert suspects.score[place].item() == pytest.approx(score, **NEAR)
        assert suspects.flagged[place].item() is (better != label)


@given(cases())
def test_the_posterior_is_a_distribution_and_that_of_the_twin(case: Case) -> None:
    labels, probabilities, matrix = case
    rows = label_posterior(torch.tensor(labels), real(probabilities), real(matrix))
    assert rows.dtype == torch.float64
    for row, label, each in zip(rows.tolist(), labels, probabilities, strict=True):
        assert row == pytest.approx(posterior.posterior(each, label, matrix), **NEAR)
        assert sum(row) == pytest.approx(1)


@given(cases())
def test_without_a_matrix_it_is_estimated_from_the_samples(case: Case) -> None:
    labels, probabilities, _ = case
    counted = posterior.noise_matrix(posterior.counts(labels, probabilities, len(probabilities[0])))
    expected = posterior.discounted(counted, posterior.learnt_noise(labels, probabilities))
    estimate = estimate_matrix(torch.tensor(labels), real(probabilities))
    torch.testing.assert_close(estimate, real(expected))
    same(found(labels, probabilities), found(labels, probabilities, estimate.tolist()))


# --- what holds for all ---


@given(networks(), st.booleans())
def test_a_score_is_a_probability_and_a_flag_is_another_suggestion(case: tuple[Tensor, Tensor], single: bool) -> None:
    labels, probabilities = case
    suspects = find_suspects(labels, probabilities.float() if single else probabilities)
    assert ((suspects.score >= 0) & (suspects.score <= 1)).all()
    assert suspects.score.dtype == torch.float64
    assert suspects.flagged.dtype == torch.bool
    assert suspects.suggested.dtype == torch.int64
    assert torch.equal(suspects.flagged, suspects.suggested != labels)
    assert suspects.flagged.shape == suspects.suggested.shape == suspects.score.shape == labels.shape


def test_rounding_never_leads_below_0() -> None:
    probabilities = torch.full((1, 3), 1 / 3)  # in single precision
    probabilities[0, 0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    assert find_suspects(torch.tensor([0]), probabilities, torch.zeros(3, 3)).score.item() == 0


def test_a_label_in_doubt_stays() -> None:
    even = [[0.25] * 4] * 4
    suspects = found([0, 1, 2, 3], even, even)
    assert suspects.suggested.tolist() == [0, 1, 2, 3]
    assert not suspects.flagged.any()
    assert suspects.score.tolist() == [0.75] * 4
    assert found([2], [[0.25, 0.375, 0.0, 0.375]], even).suggested.tolist() == [1]  # of two better ones the first


@given(networks())
def test_where_labels_are_never_wrong_nothing_is_flagged(case: tuple[Tensor, Tensor]) -> None:
    labels, probabilities = case
    suspects = find_suspects(labels, probabilities, torch.eye(probabilities.shape[1]))
    assert not suspects.flagged.any()
    assert (suspects.score == 0).all()


def test_a_label_that_no_probable_class_gets_is_judged_by_the_model_alone() -> None:
    never = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]  # nobody is labelled 2
    suspects = found([2, 2, 0], [[0.2, 0.5, 0.3], [0.25, 0.25, 0.5], [0.0, 0.25, 0.75]], never)
    assert suspects.suggested.tolist() == [1, 2, 2]
    assert suspects.score.tolist() == pytest.approx([0.7, 0.5, 1.0])


def test_the_smallest_probability_counts_where_it_is_the_only_one() -> None:
    """Numbers so small that they have few digits left: the posterior is still a distribution."""
    tiny = 5e-324
    suspects = found([0], [[tiny, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    assert (suspects.flagged.item(), suspects.score.item()) == (False, 0.0)


def test_single_precision_is_not_enough_for_a_product() -> None:
    probabilities, matrix = torch.tensor([[1e-30, 1e-29]]), torch.tensor([[1e-20, 1.0], [1e-22, 1.0]])
    found = find_suspects(torch.tensor([0]), probabilities, matrix)
    assert (found.flagged.item(), found.score.item()) == (False, pytest.approx(1 / 11))


@given(networks(), st.sampled_from([0.1, 0.3, 0.5]))
def test_with_symmetric_noise_the_order_is_that_of_the_model(case: tuple[Tensor, Tensor], ratio: float) -> None:
    labels, probabilities = case
    suspects = find_suspects(labels, probabilities, noise.symmetric(probabilities.shape[1], ratio))
    doubt = 1 - probabilities.gather(1, labels.unsqueeze(1)).squeeze(1)
    assert (doubt[suspects.order()].diff() <= 1e-9).all()


@given(networks())
def test_the_more_labels_are_wrong_the_less_a_label_counts(case: tuple[Tensor, Tensor]) -> None:
    labels, probabilities = case
    classes = probabilities.shape[1]
    few, many = (find_suspects(labels, probabilities, noise.symmetric(classes, ratio)) for ratio in (0.1, 0.4))
    assert (few.score <= many.score + 1e-12).all()
    assert (many.flagged | ~few.flagged).all()


def test_a_usual_confusion_is_suspected_sooner() -> None:
    """Class 0 is often labelled 1, and never 2."""
    matrix = [[0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    suspects = found([1, 2], [[0.75, 0.25, 0.0], [0.75, 0.0, 0.25]], matrix)
    assert suspects.suggested.tolist() == [0, 2]
    assert suspects.score.tolist() == pytest.approx([0.3 / 0.55, 0.0])


@given(networks())
def test_a_class_more_that_nobody_has_changes_nothing(case: tuple[Tensor, Tensor]) -> None:
    labels, probabilities = case
    matrix = noise.pair(probabilities.shape[1], 0.3)
    wider = torch.block_diag(matrix, torch.ones(1, 1, dtype=torch.float64))
    more = torch.cat([probabilities, torch.zeros(len(labels), 1, dtype=torch.float64)], dim=1)
    same(find_suspects(labels, more, wider), find_suspects(labels, probabilities, matrix))


@given(networks())
def test_the_order_of_samples_does_not_matter(case: tuple[Tensor, Tensor]) -> None:
    labels, probabilities = case
    turned = order(len(labels))
    straight = find_suspects(labels, probabilities)
    moved = Suspects(straight.flagged[turned], straight.suggested[turned], straight.score[turned])
    same(find_suspects(labels[turned], probabilities[turned]), moved)


@given(networks(), st.integers(0, 40))
def test_sums_over_clients_give_the_matrix_of_all(case: tuple[Tensor, Tensor], cut: int) -> None:
    labels, probabilities = case
    classes = probabilities.shape[1]
    counts = sum(
        transition_counts(labels[part], probabilities[part].argmax(dim=1), classes)
        for part in (slice(cut), slice(cut, None))
    )
    assert isinstance(counts, Tensor)
    matrix = discount_memorized(noise_matrix(counts), memorized_share(labels, probabilities))
    assert torch.equal(matrix, estimate_matrix(labels, probabilities))
    same(find_suspects(labels, probabilities, matrix), find_suspects(labels, probabilities))


@given(networks())
def test_with_a_matrix_a_sample_is_judged_by_itself_alone(case: tuple[Tensor, Tensor]) -> None:
    labels, probabilities = case
    matrix = estimate_matrix(labels, probabilities)
    together = find_suspects(labels, probabilities, matrix)
    for place in range(min(len(labels), 5)):
        one = slice(place, place + 1)
        alone = find_suspects(labels[one], probabilities[one], matrix)
        same(alone, Suspects(together.flagged[one], together.suggested[one], together.score[one]))


@given(networks())
def test_order_puts_the_most_suspicious_first_and_loses_nobody(case: tuple[Tensor, Tensor]) -> None:
    suspects = find_suspects(*case)
    places = suspects.order()
    assert sorted(places.tolist()) == list(range(len(suspects.score)))
    assert (suspects.score[places].diff() <= 0).all()


def test_equal_scores_keep_their_order() -> None:
    suspects = find_suspects(torch.zeros(40, dtype=torch.long), torch.full((40, 2), 0.5))
    assert suspects.order().tolist() == list(range(40))


def test_no_samples_give_no_suspects() -> None:
    nobody, nothing = torch.zeros(0, dtype=torch.long), torch.zeros(0, 3)
    for matrix in (None, torch.eye(3)):
        suspects = find_suspects(nobody, nothing, matrix)
        assert len(suspects.score) == len(suspects.order()) == len(suspects.flagged) == 0
    assert torch.equal(estimate_matrix(nobody, nothing), noise.symmetric(3, 0.5))


# --- models that have learnt the noise ---


def noisy(matrix: Tensor, samples: int = 2000) -> tuple[Tensor, Tensor]:
    """True and given labels."""
    truth = torch.arange(samples) % len(matrix)
    return truth, noise.corrupt(truth, matrix, torch.Generator().manual_seed(0))


def spread(probabilities: Tensor, strength: float = 0.3) -> Tensor:
    """The same, less even: the logits are shaken."""
    shaken = torch.randn(probabilities.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (probabilities.log() + strength * shaken).softmax(dim=1)


@pytest.mark.parametrize("kind", [noise.symmetric, noise.pair])
@pytest.mark.parametrize("classes", [2, 10])
def test_a_model_of_labels_finds_what_a_model_of_classes_finds(kind: Callable[..., Tensor], classes: int) -> None:
    """It gives each class the probabilities by which it is labelled, as plain training does."""
    matrix = kind(classes, 0.3)
    truth, labels = noisy(matrix)
    probabilities = spread((matrix[truth] + 1e-3) / (1 + classes * 1e-3), 0.1)
    suspects = find_suspects(labels, probabilities)
    f1 = detection(suspects.flagged, labels != truth).f1
    assert f1 is not None
    assert f1 > 0.95


def test_of_labels_half_known_by_heart_more_are_flagged_and_none_wrongly() -> None:
    """The label that it was trained on has part of the model's probability, of some samples more, of others less."""
    truth, labels = noisy(noise.symmetric(10, 0.4))
    strength = torch.rand(len(labels), 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one_hot = torch.eye(10, dtype=torch.float64)
    known = (0.9 - 0.4 * strength) * one_hot[truth] + 0.4 * strength * one_hot[labels] + 0.01
    probabilities, wrong = spread(known), labels != truth
    counts = transition_counts(labels, probabilities.argmax(dim=1), 10)
    twice = find_suspects(labels, probabilities, noise_matrix(counts))  # counts the label twice
    once = find_suspects(labels, probabilities)
    assert (detection(once.flagged, wrong).recall or 0) > 2 * (detection(twice.flagged, wrong).recall or 0) > 0
    assert detection(once.flagged, wrong).precision == 1
    assert average_precision(once.score, wrong) == pytest.approx(average_precision(twice.score, wrong), abs=0.01)


def test_clean_labels_stay_where_the_model_errs_in_doubt() -> None:
    """Nine tenths are sure and right, the rest a guess."""
    truth = torch.arange(2000) % 10
    probabilities = noise.symmetric(10, 0.02)[truth]
    probabilities[:200] = noise.symmetric(10, 0.5)[(truth[:200] + 1) % 10]
    assert not find_suspects(truth, probabilities).flagged.any()


@given(networks())
def test_what_is_learnt_makes_no_label_less_suspicious(case: tuple[Tensor, Tensor]) -> None:
    labels, probabilities = case
    matrix = noise_matrix(transition_counts(labels, probabilities.argmax(dim=1), probabilities.shape[1]))
    before, after = find_suspects(labels, probabilities, matrix), find_suspects(labels, probabilities)
    assert (after.score >= before.score - 1e-12).all()
    assert (after.flagged | ~before.flagged).all()


# --- Eq. 7's mask ---


@given(batch())
def test_unlike_centroid_is_where_eq_7_does_not_trust(drawn: Batch) -> None:
    features, centroids = real(drawn.features), real(drawn.centroids)
    mask = centroid_disagrees(torch.tensor(drawn.labels), features, centroids)
    assert mask.dtype == torch.bool
    assert torch.equal(mask, ~c.confident_mask(features, torch.tensor(drawn.labels), centroids))


def test_a_label_is_unlike_where_another_centroid_is_nearer_in_angle() -> None:
    features = torch.tensor([[5.0, 1.0], [1.0, 5.0], [5.0, 1.0]])
    centroids = torch.tensor([[0.1, 0.0], [0.0, 9.0]])  # their lengths do not matter
    assert centroid_disagrees(torch.tensor([0, 0, 1]), features, centroids).tolist() == [False, True, True]


def test_a_class_without_a_centroid_attracts_nobody_and_its_label_is_doubted() -> None:
    centroids = torch.tensor([[0.0, 0.0], [0.0, 1.0], [-1.0, -0.2]])
    features = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])  # away from all, nowhere, near the last
    assert centroid_disagrees(torch.zeros(3, dtype=torch.long), features, centroids).all()
    assert centroid_disagrees(torch.tensor([1, 1, 2]), features, centroids).tolist() == [False, False, False]


@given(batch())
def test_a_class_more_without_a_centroid_changes_no_mask(drawn: Batch) -> None:
    labels, features, centroids = torch.tensor(drawn.labels), real(drawn.features), real(drawn.centroids)
    if not c.has_centroid(centroids).any():  # then nobody is judged at all
        return
    wider = torch.cat([centroids, torch.zeros(1, centroids.shape[1], dtype=torch.float64)])
    assert torch.equal(centroid_disagrees(labels, features, wider), centroid_disagrees(labels, features, centroids))
