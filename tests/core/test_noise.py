import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.noise import achieved_ratio, check_labels, corrupt, pair, symmetric
from tests.core.draws import real
from tests.naive import equations

MATRICES = [symmetric, pair]
classes_ = st.integers(2, 12)
ratios = st.floats(0, 1, exclude_max=True)


def rng(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("fast", "naive"),
    [(symmetric, equations.symmetric_matrix), (pair, equations.pair_matrix)],
    ids=["symmetric", "pair"],
)
@given(classes=classes_, ratio=ratios)
def test_q_is_the_supplements_matrix(fast, naive, classes, ratio):
    torch.testing.assert_close(fast(classes, ratio), real(naive(classes, ratio)), rtol=0, atol=1e-15)


@pytest.mark.parametrize("make", MATRICES)
@given(classes=classes_, ratio=ratios)
def test_rows_of_q_are_distributions_with_the_asked_ratio_off_the_diagonal(make, classes, ratio):
    matrix = make(classes, ratio)
    assert (matrix >= 0).all()
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(classes, dtype=torch.float64))
    torch.testing.assert_close(1 - matrix.diagonal(), torch.full((classes,), ratio, dtype=torch.float64))


@pytest.mark.parametrize("make", MATRICES)
@pytest.mark.parametrize("classes", [2, 10])
def test_q_without_noise_is_the_identity(make, classes):
    assert torch.equal(make(classes, 0.0), torch.eye(classes, dtype=torch.float64))


@pytest.mark.parametrize("make", MATRICES)
@pytest.mark.parametrize("ratio", [-0.1, 1.0, 1.5, float("nan")])
def test_a_ratio_outside_0_to_1_is_refused(make, ratio):
    with pytest.raises(ValueError, match=r"noise ratio lies in \[0, 1\), not"):
        make(10, ratio)


@pytest.mark.parametrize("make", MATRICES)
@pytest.mark.parametrize("classes", [1, 0, -3])
def test_fewer_than_two_classes_are_refused(make, classes):
    with pytest.raises(ValueError, match=f"at least 2 classes, not {classes}"):
        make(classes, 0.2)


@pytest.mark.parametrize("make", MATRICES)
@given(seed=st.integers(0, 2**63 - 1))
def test_without_noise_every_label_stays(make, seed):
    labels = torch.arange(30) % 5
    assert torch.equal(corrupt(labels, make(5, 0.0), rng(seed)), labels)


@pytest.mark.parametrize("make", MATRICES)
def test_the_same_seed_gives_the_same_labels_and_another_seed_others(make):
    labels = torch.arange(200) % 10
    first, again, other = (corrupt(labels, make(10, 0.4), rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_labels_follow_their_own_row_of_q():
    matrix = real([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])  # not symmetric: rows and columns differ
    each = 20_000
    truth = torch.arange(3).repeat_interleave(each)
    noisy = corrupt(truth, matrix, rng())
    for true in range(3):
        for name in range(3):
            share = sum(1 for label in noisy[truth == true].tolist() if label == name) / each
            expected = float(matrix[true, name])
            assert share == pytest.approx(expected, abs=5 * (expected * (1 - expected) / each) ** 0.5)  # 5 sigma


@pytest.mark.parametrize("make", MATRICES)
@pytest.mark.parametrize("ratio", [0.1, 0.45, 0.6, 0.95])
def test_the_ratio_reached_is_near_the_asked_one(make, ratio):
    truth = torch.arange(20_000) % 10
    assert achieved_ratio(corrupt(truth, make(10, ratio), rng()), truth) == pytest.approx(ratio, abs=0.018)  # 5 sigma


def test_a_pair_flip_is_always_to_the_next_class():
    truth = torch.arange(3000) % 3
    noisy = corrupt(truth, pair(3, 0.5), rng())
    wrong = noisy != truth
    assert wrong.any()
    assert torch.equal(noisy[wrong], (truth[wrong] + 1) % 3)


def test_a_symmetric_flip_reaches_every_other_class():
    noisy = corrupt(torch.zeros(1000, dtype=torch.long), symmetric(5, 0.5), rng())
    assert set(noisy.tolist()) == {0, 1, 2, 3, 4}


def test_corrupt_leaves_its_input_and_the_global_random_state_alone():
    labels = torch.arange(50) % 5
    before, state = labels.clone(), torch.get_rng_state()
    corrupt(labels, symmetric(5, 0.9), rng())
    assert torch.equal(labels, before)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_labels_of_any_whole_number_type_are_corrupted(dtype):
    labels = torch.tensor([0, 1, 2, 2], dtype=dtype)
    assert corrupt(labels, pair(3, 0.0), rng()).tolist() == [0, 1, 2, 2]


def test_no_labels_give_no_labels():
    assert corrupt(torch.tensor([], dtype=torch.long), pair(3, 0.4), rng()).tolist() == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 3], r"labels must lie in 0\.\.2, found 0\.\.3"),
        ([-1, 2], r"labels must lie in 0\.\.2, found -1\.\.2"),
        ([0.0, 1.0], "one row of whole numbers"),
        ([[0], [1]], "one row of whole numbers"),
    ],
)
def test_labels_that_are_none_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        corrupt(torch.tensor(labels), pair(3, 0.4), rng())


def test_labels_in_range_pass_the_check():
    check_labels(torch.tensor([0, 2, 1]), classes=3)
    check_labels(torch.tensor([], dtype=torch.long), classes=3)


@given(pairs=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_achieved_ratio_counts_wrong_labels(pairs):
    labels, truth = torch.tensor(pairs).T
    assert achieved_ratio(labels, truth) == pytest.approx(sum(1 for a, b in pairs if a != b) / len(pairs))


def test_achieved_ratio_of_nothing_is_zero():
    assert achieved_ratio(torch.tensor([]), torch.tensor([])) == 0.0
