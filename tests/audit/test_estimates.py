import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl import audit
from rofl.core import noise


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
