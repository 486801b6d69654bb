import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl.core import centroids as c
from tests.core.draws import Batch, batch, matrices, order, real
from tests.naive import equations


def assert_finite(*tensors):
    for tensor in tensors:
        assert torch.isfinite(tensor).all()


@given(drawn=batch())
def test_class_means_are_eq_3(drawn: Batch):
    means, counts = c.class_means(
        real(drawn.features), torch.tensor(drawn.labels), drawn.classes, torch.tensor(drawn.keep)
    )
    naive_means, naive_counts = equations.class_means(drawn.features, drawn.labels, drawn.classes, drawn.keep)
    assert_close(means, real(naive_means))
    assert counts.tolist() == naive_counts


@given(drawn=batch())
def test_class_means_without_a_mask_count_every_sample(drawn: Batch):
    means, counts = c.class_means(real(drawn.features), torch.tensor(drawn.labels), drawn.classes)
    naive_means, naive_counts = equations.class_means(drawn.features, drawn.labels, drawn.classes)
    assert_close(means, real(naive_means))
    assert counts.tolist() == naive_counts


def test_class_means_worked_by_hand():
    features = torch.tensor([[1.0, 2.0], [3.0, 4.0], [100.0, 100.0], [5.0, 0.0]])
    keep = torch.tensor([True, True, False, True])
    means, counts = c.class_means(features, torch.tensor([0, 0, 0, 2]), classes=3, keep=keep)
    assert means.tolist() == [[2.0, 3.0], [0.0, 0.0], [5.0, 0.0]]
    assert counts.tolist() == [2.0, 0.0, 1.0]


def test_class_means_of_one_class_only():
    features = torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    means, counts = c.class_means(features, torch.tensor([1, 1]), classes=3)
    assert means.tolist() == [[0.0, 0.0], [0.5, 1.5], [0.0, 0.0]]
    assert counts.tolist() == [0.0, 2.0, 0.0]


@given(drawn=batch())
def test_permuting_samples_leaves_class_means_alone(drawn: Batch):
    shuffle = order(len(drawn.labels))
    features, labels, keep = real(drawn.features), torch.tensor(drawn.labels), torch.tensor(drawn.keep)
    straight = c.class_means(features, labels, drawn.classes, keep)
    assert_close(c.class_means(features[shuffle], labels[shuffle], drawn.classes, keep[shuffle]), straight)


@given(drawn=batch())
def test_similarity_is_the_cosine_clamped_at_zero(drawn: Batch):
    left, right = drawn.features[0], drawn.centroids[0]
    assert float(c.similarity(real(left), real(right))) == pytest.approx(equations.sim(left, right), abs=1e-12)


@given(drawn=batch(), factor=st.floats(0.1, 100))
def test_similarity_lies_in_0_to_1_whatever_the_scale(drawn: Batch, factor):
    left, right = real(drawn.features[0]), real(drawn.centroids[0])
    value = c.similarity(left, right)
    assert 0 <= value <= 1
    assert_close(c.similarity(left * factor, right), value)


@given(drawn=batch())
def test_blend_is_eq_4(drawn: Batch):
    means, counts = equations.class_means(drawn.features, drawn.labels, drawn.classes, drawn.keep)
    blended = c.update_centroids(real(drawn.centroids), real(means), torch.tensor(counts))
    assert_close(blended, real(equations.blend(drawn.centroids, means, counts)))


@given(drawn=batch())
def test_blend_lies_between_the_old_centroid_and_the_mean(drawn: Batch):
    means, counts = c.class_means(real(drawn.features), torch.tensor(drawn.labels), drawn.classes)
    old = real(drawn.centroids)
    blended = c.update_centroids(old, means, counts)
    assert (blended >= torch.minimum(old, means) - 1e-12).all()
    assert (blended <= torch.maximum(old, means) + 1e-12).all()


def test_blend_worked_by_hand():
    # (1, 0) and (1, 1): cosine 1 / sqrt 2, squared 1/2, so half of each
    assert_close(c.update_centroids(real([[1, 0]]), real([[1, 1]]), torch.tensor([1])), real([[1.0, 0.5]]))


@pytest.mark.parametrize(
    ("old", "mean", "count", "expected"),
    [
        ([2.0, 1.0], [9.0, 9.0], 0, [2.0, 1.0]),  # no sample: the centroid stays
        ([0.0, 0.0], [3.0, 4.0], 1, [3.0, 4.0]),  # no centroid yet: the mean
        ([1.0, 0.0], [0.0, 5.0], 1, [1.0, 0.0]),  # at right angles: not believed
        ([1.0, 0.0], [-5.0, 0.0], 1, [1.0, 0.0]),  # opposite: not believed either, though the square is 1
        ([1.0, 0.0], [5.0, 0.0], 1, [5.0, 0.0]),  # same direction: fully believed
        ([1.0, 0.0], [0.0, 0.0], 1, [1.0, 0.0]),  # a mean without direction
        ([0.0, 0.0], [0.0, 0.0], 0, [0.0, 0.0]),
    ],
)
def test_blend_at_its_corners(old, mean, count, expected):
    assert c.update_centroids(torch.tensor([old]), torch.tensor([mean]), torch.tensor([count])).tolist() == [expected]


@pytest.mark.parametrize("scale", [1e-6, 1e6, 1e20])
def test_a_blend_of_tiny_or_huge_features_is_finite(scale):
    old, means = scale * torch.tensor([[1.0, 0.0]]), scale * torch.tensor([[1.0, 1.0]])
    assert_finite(c.similarity(old, means), c.update_centroids(old, means, torch.tensor([1])))


def test_repeated_blends_are_eq_13():
    old = [[1.0, 0.2], [0.5, 2.0]]
    fast = real(old)
    for means, counts in [([[2.0, 1.0], [0.0, 0.0]], [3, 0]), ([[1.0, 3.0], [1.0, 1.0]], [1, 2])]:
        old = equations.blend(old, means, counts)
        fast = c.update_centroids(fast, real(means), torch.tensor(counts))
    assert_close(fast, real(old))


def test_known_tells_zero_vectors_from_others():
    assert c.has_centroid(torch.tensor([[0.0, 0.0], [0.0, -1e-3], [2.0, 0.0]])).tolist() == [False, True, True]


def margin(feature, centroids) -> float:
    """How far the best class is ahead of the next; within rounding nobody can say which is first."""
    cosines = sorted(equations.cosine(feature, centroid) for centroid in centroids if not equations.is_zero(centroid))
    return cosines[-1] - cosines[-2] if len(cosines) > 1 else 1.0


@given(drawn=batch())
def test_similarity_labels_are_eq_6(drawn: Batch):
    assume(any(not equations.is_zero(centroid) for centroid in drawn.centroids))
    found = c.similarity_labels(real(drawn.features), real(drawn.centroids)).tolist()
    for feature, label in zip(drawn.features, found, strict=True):
        if margin(feature, drawn.centroids) > 1e-9:
            assert label == equations.similarity_label(feature, drawn.centroids)


@given(drawn=batch())
def test_confident_is_eq_7(drawn: Batch):
    assume(any(not equations.is_zero(centroid) for centroid in drawn.centroids))
    assume(all(margin(feature, drawn.centroids) > 1e-9 for feature in drawn.features))
    mask = c.confident_mask(real(drawn.features), torch.tensor(drawn.labels), real(drawn.centroids))
    assert mask.tolist() == equations.confident_mask(drawn.features, drawn.labels, drawn.centroids)


@given(drawn=batch())
def test_permuting_samples_permutes_labels_and_mask(drawn: Batch):
    shuffle = order(len(drawn.labels))
    features, labels, centroids = real(drawn.features), torch.tensor(drawn.labels), real(drawn.centroids)
    assume(all(margin(row, drawn.centroids) > 1e-9 for row in drawn.features))
    straight = c.similarity_labels(features, centroids)
    assert torch.equal(c.similarity_labels(features[shuffle], centroids), straight[shuffle])
    mask = c.confident_mask(features, labels, centroids)
    assert torch.equal(c.confident_mask(features[shuffle], labels[shuffle], centroids), mask[shuffle])


def test_the_length_of_a_feature_or_centroid_does_not_matter_to_its_label():
    centroids = torch.tensor([[100.0, 0.0], [0.01, 0.01]])
    assert c.similarity_labels(torch.tensor([[5.0, 4.0], [0.5, 0.4]]), centroids).tolist() == [1, 1]


@pytest.mark.parametrize("feature", [[0.0, 1.0], [-1.0, 0.1], [-1.0, 0.0], [0.0, 0.0]])
def test_a_class_without_a_centroid_wins_no_comparison(feature):
    centroids = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert c.similarity_labels(torch.tensor([feature]), centroids).tolist() == [1]


def test_labels_of_features_without_direction_are_still_classes():
    labels = c.similarity_labels(torch.zeros(3, 2), torch.zeros(4, 2))
    assert all(0 <= label < 4 for label in labels.tolist())


@st.composite
def cohorts(draw: st.DrawFn):
    clients, classes, size = draw(st.integers(1, 4)), draw(st.integers(2, 4)), draw(st.integers(1, 4))
    counts = st.lists(st.integers(0, 3), min_size=classes, max_size=classes)
    return (
        draw(matrices(classes, size)),
        [draw(matrices(classes, size)) for _ in range(clients)],
        draw(st.lists(counts, min_size=clients, max_size=clients)),
    )


def two_sums(stored, locals_, counts):
    parts = [
        c.weighted_centroids(real(local), real(stored), torch.tensor(count))
        for local, count in zip(locals_, counts, strict=True)
    ]
    return c.global_centroids(sum(part[0] for part in parts), sum(part[1] for part in parts), real(stored))


@given(drawn=cohorts())
def test_two_sums_give_the_papers_global_centroids(drawn):
    stored, locals_, counts = drawn
    for name, centroid in enumerate(stored):  # a sum of weights that only rounding tells from 0 is left out
        weights = [
            equations.centroid_weight(centroid, local[name], count[name])
            for local, count in zip(locals_, counts, strict=True)
        ]
        assume(not 1e-17 < sum(weights) < 1e-6)
    assert_close(two_sums(stored, locals_, counts), real(equations.global_centroids(stored, locals_, counts)))


@given(drawn=cohorts())
def test_weights_are_eq_12(drawn):
    stored, locals_, counts = drawn
    for local, count in zip(locals_, counts, strict=True):
        weighted, weights = c.weighted_centroids(real(local), real(stored), torch.tensor(count))
        expected = [equations.centroid_weight(*row) for row in zip(stored, local, count, strict=True)]
        assert_close(weights, real(expected).unsqueeze(1))
        assert_close(weighted, real([[w * x for x in row] for w, row in zip(expected, local, strict=True)]))


@given(drawn=cohorts())
def test_in_round_1_the_server_takes_the_plain_mean_of_those_who_have_the_class(drawn):
    _, locals_, counts = drawn
    locals_ = [[[abs(value) + 1 for value in row] for row in local] for local in locals_]
    nothing = [[0.0] * len(row) for row in locals_[0]]
    merged = two_sums(nothing, locals_, counts).tolist()
    for name, centroid in enumerate(merged):
        rows = [local[name] for local, count in zip(locals_, counts, strict=True) if count[name] > 0]
        assert centroid == pytest.approx([sum(column) / len(rows) for column in zip(*rows, strict=True)] or nothing[0])


def test_global_centroids_worked_by_hand():
    # to (1, 0): (2, 0) has similarity 1, (1, 1) has 1 / sqrt 2; the weights are 2 - sqrt 2 and sqrt 2 - 1
    root = 2**0.5
    merged = two_sums([[1.0, 0.0]], [[[2.0, 0.0]], [[1.0, 1.0]]], [[5], [9]])
    assert_close(merged, real([[2 * (2 - root) + (root - 1), root - 1]]))


@pytest.mark.parametrize(
    ("locals_", "counts"),
    [
        ([[[9.0, 9.0]], [[7.0, 0.0]]], [[0], [0]]),  # nobody has a sample of the class
        ([[[0.0, 0.0]]], [[4]]),  # no direction
        ([[[-3.0, 0.0]], [[0.0, 2.0]]], [[4], [4]]),  # no similarity at all
    ],
)
def test_a_class_with_no_weight_keeps_its_stored_centroid(locals_, counts):
    assert two_sums([[1.0, 0.0]], locals_, counts).tolist() == [[1.0, 0.0]]


def test_a_client_without_the_class_does_not_out_vote_the_others():
    stored = [[1.0, 0.0]]
    assert two_sums(stored, [[[4.0, 0.0]], [[1.0, 0.0]]], [[3], [0]]).tolist() == [[4.0, 0.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("samples", [1, 4], ids=["batch of one", "batch of four"])
@pytest.mark.parametrize("features", [torch.zeros, torch.ones], ids=["zero features", "features"])
@pytest.mark.parametrize("stored", [torch.zeros, torch.ones], ids=["no centroids", "centroids"])
@pytest.mark.parametrize("keep", [False, True], ids=["none kept", "all kept"])
def test_one_client_round_stays_finite_and_keeps_its_type(dtype, samples, features, stored, keep):
    features, stored = features(samples, 3, dtype=dtype), stored(4, 3, dtype=dtype)
    labels = torch.full((samples,), 2)  # one class only, the others absent
    means, counts = c.class_means(features, labels, 4, torch.full((samples,), keep))
    blended = c.update_centroids(stored, means, counts)
    weighted, weights = c.weighted_centroids(blended, stored, counts)
    merged = c.global_centroids(weighted, weights, stored)
    results = (means, counts, blended, weighted, weights, merged)
    assert_finite(*results)
    assert {result.dtype for result in results} == {dtype}
    assert c.confident_mask(features, labels, blended).shape == (samples,)


def test_before_there_are_centroids_a_client_weighs_a_class_once_or_not_at_all():
    """So that nobody can nearly cancel the others' weights in round 1, when no length is known to compare with."""
    weighted, none = torch.ones(2, 3), torch.zeros(2, 3)
    assert c.check_centroid_sums(weighted, torch.tensor([[5.0], [0.0]]), none, clients=5) is None
    for weight in (0.32, -1.0, 6.0):
        found = c.check_centroid_sums(weighted, torch.tensor([[5.0], [weight]]), none, clients=5)
        assert found == "its similarities are not between 0 and 1"
    assert c.check_centroid_sums(weighted, torch.tensor([[0.32], [0.5]]), torch.ones(2, 3), clients=5) is None
