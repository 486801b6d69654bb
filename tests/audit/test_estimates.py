import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl import audit
from rofl.core import noise
from tests.core.draws import order, real
from tests.naive import posterior


@st.composite
def labelled(draw: st.DrawFn):
    """Classes, and pairs of a given and a suggested label."""
    classes = draw(st.integers(2, 5))
    label = st.integers(0, classes - 1)
    return classes, draw(st.lists(st.tuples(label, label), max_size=30))


@given(labelled())
def test_counts_are_those_of_a_loop_and_rows_of_q_sum_to_one(drawn) -> None:
    classes, pairs = drawn
    expected = [[0] * classes for _ in range(classes)]
    for given_label, suggested in pairs:
        expected[suggested][given_label] += 1
    columns = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T
    counts = audit.transition_counts(*columns, classes)
    assert counts.tolist() == expected
    matrix = audit.transition(counts)
    assert_close(matrix.sum(dim=1), torch.ones(classes, dtype=torch.float64))
    for suggested, row in enumerate(expected):
        if sum(row) == 0:
            assert matrix[suggested, suggested] == 1
        else:
            assert_close(matrix[suggested], torch.tensor(row, dtype=torch.float64) / sum(row))


@given(labelled(), labelled())
def test_counts_of_two_clients_add_up_to_those_of_both(left, right) -> None:
    classes = max(left[0], right[0])
    parts = [torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).T for _, pairs in (left, right)]
    both = audit.transition_counts(*torch.cat(parts, dim=1), classes)
    assert torch.equal(both, sum(audit.transition_counts(*part, classes) for part in parts))


def test_a_model_that_knows_the_truth_finds_the_matrix_that_made_the_noise() -> None:
    truth = torch.arange(4).repeat(5000)
    matrix = noise.pair(4, 0.3)
    given_labels = noise.corrupt(truth, matrix, torch.Generator().manual_seed(0))
    found = audit.transition(audit.transition_counts(given_labels, truth, 4))
    assert_close(found, matrix, atol=0.02, rtol=0)
    assert abs(audit.noise_ratio(given_labels != truth) - 0.3) < 0.01


def test_no_samples_have_no_noise() -> None:
    assert audit.noise_ratio(torch.zeros(0, dtype=torch.bool)) == 0


# --- counts that are not believed blindly ---


@st.composite
def tables(draw: st.DrawFn) -> list[list[int]]:
    """Counts (K, K): of few and of many samples, with classes that nobody is called."""
    classes = draw(st.integers(2, 4))
    agreed, other = st.integers(0, draw(st.sampled_from([3, 300]))), st.integers(0, draw(st.sampled_from([0, 2, 60])))
    rows = [[draw(agreed if i == j else other) for j in range(classes)] for i in range(classes)]
    empty = draw(st.sets(st.integers(0, classes - 1), max_size=1))
    return [[0] * classes if i in empty else row for i, row in enumerate(rows)]


def agreement(counts: list[list[int]]) -> float:
    return sum(counts[k][k] for k in range(len(counts))) / max(sum(map(sum, counts)), 1)


@given(tables())
def test_the_noise_matrix_is_that_of_the_twin_and_its_rows_sum_to_one(counts: list[list[int]]) -> None:
    matrix = audit.noise_matrix(torch.tensor(counts))
    assert_close(matrix, real(posterior.noise_matrix(counts)))
    assert_close(matrix.sum(dim=1), torch.ones(len(counts), dtype=torch.float64))
    assert (matrix >= 0).all()


@given(tables())
def test_it_lies_between_the_counts_and_symmetric_noise(counts: list[list[int]]) -> None:
    assume(agreement(counts) >= 0.5)
    found, raw = audit.noise_matrix(torch.tensor(counts)), audit.transition(torch.tensor(counts))
    even = noise.symmetric(len(counts), 1 - agreement(counts))
    low, high = torch.minimum(raw, even), torch.maximum(raw, even)
    assert ((low - 1e-9 <= found) & (found <= high + 1e-9)).all()


@given(tables())
def test_the_order_of_classes_does_not_matter(counts: list[list[int]]) -> None:
    turned = order(len(counts))
    straight = audit.noise_matrix(torch.tensor(counts))
    assert_close(audit.noise_matrix(torch.tensor(counts)[turned][:, turned]), straight[turned][:, turned])


def test_a_habit_is_believed_where_many_labels_show_it() -> None:
    """Always the next class: with 10 labels of each class a little, with 10,000 quite."""
    few, many = (audit.noise_matrix((noise.pair(4, 0.4) * samples).round().long())[0] for samples in (10, 10_000))
    assert_close(many, noise.pair(4, 0.4)[0], atol=1e-3, rtol=0)
    assert 0.4 / 3 < few[1] < 0.4


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5])
def test_chance_is_taken_for_chance(ratio: float) -> None:
    truth = torch.arange(5).repeat(8)
    even = noise.symmetric(5, ratio)
    given_labels = noise.corrupt(truth, even, torch.Generator().manual_seed(1))
    counts = audit.transition_counts(given_labels, truth, 5)
    drawn, raw = audit.noise_matrix(counts), audit.transition(counts)
    assert (drawn - even).abs().mean() < 0.7 * (raw - even).abs().mean()


def test_a_model_that_agrees_with_few_labels_is_not_asked_how_they_are_wrong() -> None:
    assert_close(audit.noise_matrix(torch.tensor([[1, 9], [2, 3]])), noise.symmetric(2, 0.5))
    assert_close(audit.noise_matrix(torch.tensor([[0, 90, 0], [0, 0, 90], [90, 0, 0]])), noise.symmetric(3, 0.5))
    assert_close(audit.noise_matrix(torch.zeros(3, 3, dtype=torch.long)), noise.symmetric(3, 0.5))
    half = audit.noise_matrix(torch.tensor([[60, 40, 0], [0, 45, 55], [55, 0, 45]]))  # just enough
    assert half[0, 1] > 0.35


def test_where_all_labels_agree_none_is_wrong() -> None:
    assert torch.equal(audit.noise_matrix(torch.tensor([[3, 0], [0, 4]])), torch.eye(2, dtype=torch.float64))
