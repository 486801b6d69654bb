import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rofl.core.noise import (
    assign_groups,
    check_labels,
    corrupt,
    empirical_noise_rate,
    fully_noisy_class,
    group_ratios,
    pair,
    symmetric,
)
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
    assert empirical_noise_rate(corrupt(truth, make(10, ratio), rng()), truth) == pytest.approx(
        ratio, abs=0.018
    )  # 5 sigma


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
    assert empirical_noise_rate(labels, truth) == pytest.approx(sum(1 for a, b in pairs if a != b) / len(pairs))


def test_achieved_ratio_of_nothing_is_zero():
    assert empirical_noise_rate(torch.tensor([]), torch.tensor([])) == 0.0


# --- one class entirely wrong, and noise that differs from client to client ---


@pytest.mark.parametrize("make", MATRICES)
@given(classes=classes_, ratio=ratios, data=st.data())
def test_q_with_a_whole_class_wrong_is_the_naive_one(make, classes, ratio, data):
    wrong = data.draw(st.integers(0, classes - 1))
    naive = real(equations.whole_class_matrix(make.__name__, classes, ratio, wrong))
    torch.testing.assert_close(fully_noisy_class(make, classes, ratio, wrong), naive, rtol=0, atol=1e-15)


@pytest.mark.parametrize("make", MATRICES)
@given(classes=classes_, seed=st.integers(0, 2**63 - 1), data=st.data())
def test_no_label_of_the_wrong_class_is_right_and_without_noise_all_others_are(make, classes, seed, data):
    wrong = data.draw(st.integers(0, classes - 1))
    truth = torch.arange(40 * classes) % classes
    noisy = corrupt(truth, fully_noisy_class(make, classes, 0.0, wrong), rng(seed))
    assert torch.equal(noisy != truth, truth == wrong)


@pytest.mark.parametrize("wrong", [-1, 3])
def test_a_wrong_class_that_does_not_exist_is_refused(wrong):
    with pytest.raises(ValueError, match=rf"a class lies in 0\.\.2, not {wrong}"):
        fully_noisy_class(pair, 3, 0.4, wrong)


@given(groups=st.integers(2, 9), ratio=ratios, share=st.floats(0, 0.999))
def test_group_ratios_are_the_naive_ones_and_lie_within_their_bounds(groups, ratio, share):
    spread = share * min(ratio, 1 - ratio)
    found = group_ratios(ratio, spread, groups)
    torch.testing.assert_close(found, real(equations.group_ratios(ratio, spread, groups)), rtol=0, atol=1e-15)
    assert float(found[0]) == ratio - spread  # exactly: rounding must not leave [0, 1)
    assert float(found[-1]) == ratio + spread
    assert float(found.mean()) == pytest.approx(ratio)


def test_the_papers_example_of_group_ratios():
    assert group_ratios(0.4, 0.2).tolist() == pytest.approx([0.2, 0.3, 0.4, 0.5, 0.6])


@pytest.mark.parametrize(("ratio", "spread"), [(0.4, 0.5), (0.7, 0.3), (0.4, -0.1), (0.4, float("nan"))])
def test_group_ratios_outside_0_to_1_are_refused(ratio, spread):
    with pytest.raises(ValueError, match=r"noise ratios lie in \[0, 1\), not from"):
        group_ratios(ratio, spread)


@pytest.mark.parametrize("groups", [1, 0])
def test_fewer_than_two_groups_are_refused(groups):
    with pytest.raises(ValueError, match=f"at least 2 groups, not {groups}"):
        group_ratios(0.4, 0.2, groups)


@given(clients=st.integers(1, 60), groups=st.integers(1, 9), seed=st.integers(0, 2**63 - 1))
def test_groups_are_as_equal_as_the_number_of_clients_allows(clients, groups, seed):
    found = assign_groups(clients, groups, rng(seed))
    assert found.shape == (clients,)
    sizes = torch.bincount(found, minlength=groups).tolist()
    assert sorted(sizes, reverse=True) == equations.group_sizes(clients, groups)
    assert torch.equal(found, assign_groups(clients, groups, rng(seed)))


def test_any_client_may_be_in_any_group():
    drawn = [assign_groups(7, 5, rng(seed)) for seed in range(200)]
    for client in range(7):
        assert {int(found[client]) for found in drawn} == {0, 1, 2, 3, 4}
    together = {tuple(torch.nonzero(found == found[0]).flatten().tolist()) for found in drawn}
    assert together == {(0,), *((0, other) for other in range(1, 7))}  # with anybody else, or alone
    larger = {tuple(torch.nonzero(torch.bincount(found) == 2).flatten().tolist()) for found in drawn}
    assert len(larger) == 10  # every choice of the two larger groups of five
