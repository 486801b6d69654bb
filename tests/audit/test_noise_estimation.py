import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from rofl import audit
from rofl.core import noise
from tests.audit.draws import distributions, networks
from tests.core.draws import order, real
from tests.naive import posterior
from tests.naive.equations import Matrix


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
def test_the_noise_matrix_lies_between_the_counts_and_symmetric_noise(counts: list[list[int]]) -> None:
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


# --- how much of the noise a model has learnt ---


@st.composite
def judged(draw: st.DrawFn) -> tuple[list[int], Matrix]:
    """Labels and probabilities."""
    samples, classes = draw(st.integers(1, 9)), draw(st.integers(2, 4))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=samples, max_size=samples))
    return labels, draw(distributions(samples, classes))


@given(judged())
def test_the_memorized_share_is_that_of_the_naive_version(case: tuple[list[int], Matrix]) -> None:
    labels, probabilities = case
    found = audit.memorized_share(torch.tensor(labels), real(probabilities))
    assert found == pytest.approx(posterior.learnt_noise(labels, probabilities))


@given(networks(), st.booleans())
def test_the_memorized_share_is_in_0_to_1_in_any_order(case: tuple[Tensor, Tensor], single: bool) -> None:
    labels, probabilities = case
    probabilities = probabilities.float() if single else probabilities
    found, turned = audit.memorized_share(labels, probabilities), order(len(labels))
    assert 0 <= found <= 1
    assert audit.memorized_share(labels[turned], probabilities[turned]) == pytest.approx(found)
    classes = order(probabilities.shape[1])
    assert audit.memorized_share(classes.argsort()[labels], probabilities[:, classes]) == pytest.approx(found)


@pytest.mark.parametrize("samples", [70, 130, 1000])
def test_equal_doubts_are_all_no_more_than_their_mean(samples: int) -> None:
    """Also where rounding puts that mean below them."""
    probabilities = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).expand(samples, 3)
    assert audit.memorized_share(torch.arange(samples) % 2, probabilities) == pytest.approx(0.6)


def test_a_model_that_agrees_by_chance_has_learnt_nothing() -> None:
    """Else all labels were flagged that an untrained model happens not to agree with."""
    probabilities = torch.full((200, 10), 0.1, dtype=torch.float64)
    probabilities[:, 3] += 1e-3
    labels = torch.arange(200) % 10
    assert audit.memorized_share(labels, probabilities) == 0.0
    assert not bool(audit.find_suspects(labels, probabilities).flagged.any())


def test_a_model_that_agrees_with_all_labels_has_learnt_no_noise() -> None:
    assert audit.memorized_share(torch.tensor([0, 1]), real([[0.6, 0.4], [0.1, 0.9]])) == 0
    assert audit.memorized_share(torch.zeros(0, dtype=torch.long), torch.zeros(0, 3)) == 0


def symmetric_labels(classes: int, ratio: float) -> tuple[Tensor, Tensor]:
    truth = torch.arange(classes).repeat(4000 // classes)
    return truth, noise.corrupt(truth, noise.symmetric(classes, ratio), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_a_model_of_classes_has_learnt_little_and_one_of_labels_nearly_all(classes: int) -> None:
    truth, labels = symmetric_labels(classes, 0.3)
    for right, low, high in ((0.999, 0.0, 0.01), (0.7, 0.9, 1.0)):  # sure of the class; as the labels are distributed
        probabilities = noise.symmetric(classes, 1 - right)[truth]
        assert low <= audit.memorized_share(labels, probabilities) <= high


def test_mistakes_where_the_model_doubts_are_no_noise() -> None:
    """Right labels, and a model that is sure of nine tenths and guesses the rest."""
    labels = torch.zeros(1000, dtype=torch.long)
    probabilities = torch.tensor([0.99, 0.01]).repeat(1000, 1)
    probabilities[:100] = torch.tensor([0.45, 0.55])
    assert audit.memorized_share(labels, probabilities) == 0


@given(st.integers(2, 4).flatmap(lambda classes: distributions(classes, classes)), st.sampled_from([0.0, 0.25, 1.0]))
def test_the_discount_is_that_of_the_twin(matrix: Matrix, learnt: float) -> None:
    found = audit.discount_memorized(real(matrix), learnt)
    assert_close(found, real(posterior.discounted(matrix, learnt)))
    assert (found <= real(matrix)).all()
    assert (found.diagonal() > 0).equal(real(matrix).diagonal() > 0)
    off = ~torch.eye(len(matrix), dtype=torch.bool)
    assert torch.equal(found[off], real(matrix)[off])


def test_where_nothing_is_learnt_or_no_label_is_wrong_nothing_is_discounted() -> None:
    matrix = noise.pair(4, 0.3)
    assert torch.equal(audit.discount_memorized(matrix, 0.0), matrix)
    assert torch.equal(audit.discount_memorized(torch.eye(3), 0.7), torch.eye(3, dtype=torch.float64))


def test_with_symmetric_noise_all_learnt_leaves_the_model_alone_to_decide() -> None:
    matrix = audit.discount_memorized(noise.symmetric(5, 0.4), 1.0)
    assert_close(matrix, torch.full((5, 5), 0.1, dtype=torch.float64))
