"""The samples whose labels look wrong."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rofl.audit import find_suspects
from rofl.core.seeds import generator

Case = tuple[Tensor, Tensor, Tensor, Tensor]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Labels, probabilities, features and centroids; some features and some centroids may be zero."""
    count, classes, size = draw(st.integers(1, 8)), draw(st.integers(2, 5)), draw(st.integers(1, 4))
    rng = generator(draw(st.integers(0, 10_000)), "audit")
    scale = draw(st.sampled_from([1e-3, 1.0, 30.0]))
    labels = torch.randint(0, classes, (count,), generator=rng)
    probabilities = (torch.randn(count, classes, generator=rng) * scale).softmax(dim=1)
    features = torch.randn(count, size, generator=rng) * scale
    centroids = torch.randn(classes, size, generator=rng)
    features[torch.rand(count, generator=rng) < 0.2] = 0
    centroids[torch.rand(classes, generator=rng) < draw(st.sampled_from([0.0, 0.4]))] = 0
    return labels, probabilities, features, centroids


@given(cases(), st.booleans())
def test_scores_lie_between_0_and_1_and_nothing_is_nan(case: Case, with_centroids: bool) -> None:
    labels, probabilities, features, centroids = case
    found = find_suspects(labels, probabilities, features, centroids if with_centroids else None)
    assert ((found.score >= 0) & (found.score <= 1)).all()
    assert found.flagged.dtype == torch.bool
    assert found.flagged.shape == found.suggested.shape == found.score.shape == labels.shape
    assert torch.equal(found.suggested, probabilities.argmax(dim=1))


@given(cases())
def test_without_centroids_the_prediction_judges(case: Case) -> None:
    labels, probabilities, features, _ = case
    found = find_suspects(labels, probabilities, features)
    assert torch.equal(found.flagged, probabilities.argmax(dim=1) != labels)
    for place, label in enumerate(labels.tolist()):
        assert found.score[place].item() == pytest.approx(1 - probabilities[place, label].item(), abs=1e-6)


@given(cases())
def test_a_sample_is_judged_by_itself_alone(case: Case) -> None:
    labels, probabilities, features, centroids = case
    together = find_suspects(labels, probabilities, features, centroids)
    for place in range(len(labels)):
        one = slice(place, place + 1)
        alone = find_suspects(labels[one], probabilities[one], features[one], centroids)
        assert alone.score.item() == pytest.approx(together.score[place].item(), abs=1e-5)
        assert alone.suggested.item() == together.suggested[place].item()


@given(cases())
def test_order_puts_the_most_suspicious_first_and_loses_nobody(case: Case) -> None:
    found = find_suspects(*case)
    order = found.order()
    assert sorted(order.tolist()) == list(range(len(found.score)))
    sorted_scores = found.score[order]
    assert (sorted_scores[:-1] >= sorted_scores[1:]).all()


def test_equal_scores_keep_their_order() -> None:
    even = torch.full((40, 2), 0.5)
    found = find_suspects(torch.zeros(40, dtype=torch.long), even, even, torch.ones(2, 2))
    assert found.order().tolist() == list(range(40))


def test_a_flag_means_that_another_centroid_is_nearer() -> None:
    centroids = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    features = torch.tensor([[5.0, 1.0], [1.0, 5.0], [5.0, 1.0]])
    even = torch.full((3, 2), 0.5)
    found = find_suspects(torch.tensor([0, 0, 1]), even, features, centroids)
    assert found.flagged.tolist() == [False, True, True]
    assert found.score[0] < found.score[1]


def test_both_doubts_count_half_each() -> None:
    centroids = torch.eye(2)
    wrong_by_model = find_suspects(torch.tensor([0]), torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]]), centroids)
    wrong_by_both = find_suspects(torch.tensor([0]), torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0]]), centroids)
    right = find_suspects(torch.tensor([0]), torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), centroids)
    assert [each.score.item() for each in (right, wrong_by_model, wrong_by_both)] == pytest.approx([0.0, 0.5, 1.0])


def test_a_class_without_a_centroid_attracts_nobody_and_its_label_is_doubted() -> None:
    centroids = torch.tensor([[0.0, 0.0], [0.0, 1.0], [-1.0, -0.2]])
    features = torch.tensor([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0]])
    even = torch.full((3, 3), 1 / 3)
    as_absent = find_suspects(torch.zeros(3, dtype=torch.long), even, features, centroids)
    assert as_absent.flagged.all()
    as_known = find_suspects(torch.tensor([1, 1, 2]), even, features, centroids)
    assert as_known.flagged.tolist() == [False, False, False]
    assert (as_absent.score > as_known.score).all()


@given(cases())
def test_an_absent_class_leaves_the_judgement_on_the_others_alone(case: Case) -> None:
    """A class more, of which nobody has a sample or a centroid, changes nothing."""
    labels, probabilities, features, centroids = case
    before = find_suspects(labels, probabilities, features, centroids)
    wider = torch.cat([probabilities, torch.zeros(len(labels), 1)], dim=1)
    after = find_suspects(labels, wider, features, torch.cat([centroids, torch.zeros(1, centroids.shape[1])]))
    assert torch.equal(before.flagged, after.flagged)
    torch.testing.assert_close(before.score, after.score)


def test_no_samples_give_no_suspects() -> None:
    empty = find_suspects(torch.zeros(0, dtype=torch.long), torch.zeros(0, 3), torch.zeros(0, 2), torch.ones(3, 2))
    assert len(empty.score) == len(empty.order()) == 0
