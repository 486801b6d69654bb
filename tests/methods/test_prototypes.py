import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch.testing import assert_close

from rofl.methods import selflearning as p
from tests.core.draws import matrices, order, real
from tests.naive import equations

cosines = st.one_of(st.floats(-1, 1), st.sampled_from([-1.0, 0.0, 0.5, 1.0]))


@st.composite
def similarities(draw: st.DrawFn):
    """A symmetric matrix (m, m) with ones on its diagonal, and equal entries among the others."""
    images = draw(st.integers(1, 7))
    similar = [[1.0] * images for _ in range(images)]
    for i in range(images):
        for j in range(i):
            similar[i][j] = similar[j][i] = draw(cosines)
    return similar


@st.composite
def images(draw: st.DrawFn):
    """Features (m, d)."""
    return draw(matrices(draw(st.integers(1, 7)), draw(st.integers(2, 4))))


@st.composite
def classes_of_prototypes(draw: st.DrawFn):
    """Features (n, d), and for each class its prototypes, of which there may be none."""
    size = draw(st.integers(1, 4))
    counts = draw(st.lists(st.integers(0, 3), min_size=2, max_size=4).filter(any))
    return draw(matrices(draw(st.integers(1, 5)), size)), [draw(matrices(count, size)) for count in counts]


def clear_cut(features) -> bool:
    """Whether rounding decides nothing: only one pair lies at S_c, and no eta at 0.95."""
    similar = equations.pair_similarities(features)
    critical = equations.critical_similarity(similar)
    pairs = [abs(similar[i][j] - critical) for i in range(len(features)) for j in range(i + 1)]
    eta = equations.closeness(similar, equations.densities(similar))
    return sum(gap < 1e-9 for gap in pairs) <= 1 and all(abs(value - 0.95) > 1e-9 for value in eta)


def padded(prototypes, size):
    """As the methods hold them: (K, p, d) and which of them are real (K, p); what is not real must not matter."""
    most = max(len(rows) for rows in prototypes)
    tensor = torch.full((len(prototypes), most, size), 7.0, dtype=torch.float64)
    present = torch.zeros(len(prototypes), most, dtype=torch.bool)
    for name, rows in enumerate(prototypes):
        for place, row in enumerate(rows):
            tensor[name, place] = real(row)
            present[name, place] = True
    return tensor, present


@given(features=images())
def test_pair_similarities_are_cosines(features):
    found = p.pair_similarities(real(features))
    assert_close(found, real(equations.pair_similarities(features)))
    assert torch.equal(found, found.T)


@given(similar=similarities())
def test_densities_count_the_similar_and_the_others(similar):
    assert p.densities(real(similar)).tolist() == equations.densities(similar)


@given(similar=similarities(), density=st.lists(st.integers(-7, 7), min_size=7, max_size=7))
def test_closeness_is_to_the_next_denser_image(similar, density):
    density = density[: len(similar)]
    assert p.closeness(real(similar), real(density)).tolist() == equations.closeness(similar, density)


@given(similar=similarities())
def test_densities_and_closeness_follow_the_images_around(similar):
    shuffle = order(len(similar))
    straight, turned = real(similar), real(similar)[shuffle][:, shuffle]
    density = p.densities(straight)
    assert torch.equal(p.densities(turned), density[shuffle])
    assert torch.equal(p.closeness(turned, density[shuffle]), p.closeness(straight, density)[shuffle])


@example(  # a pair lies at S_c whose two products some machines round differently
    features=[[0, 0, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0], [0, 1, -2.5, -2], [0, 0, 0, 1], [0, 1, 0, 0], [1, 1, 4, -5]],
    count=1,
)
@given(features=images(), count=st.integers(1, 4))
def test_prototypes_are_the_densest_that_are_apart(features, count):
    assume(clear_cut(features))
    assert p.select_prototypes(real(features), count).tolist() == equations.choose_prototypes(features, count)


@given(features=images(), count=st.integers(1, 8))
def test_prototypes_are_as_many_as_wanted_and_there_are_and_no_two_are_one(features, count):
    found = p.select_prototypes(real(features), count).tolist()
    assert len(set(found)) == len(found) == min(count, len(features))


@given(features=images(), factor=st.sampled_from([0.125, 4.0, 1024.0]))
def test_the_length_of_features_does_not_matter_to_their_choice(features, factor):
    assume(clear_cut(features))
    longer = real(features)
    longer[0] = longer[0] * factor
    assert p.select_prototypes(longer, 3).tolist() == p.select_prototypes(real(features), 3).tolist()


@given(features=images())
def test_another_order_of_the_images_gives_the_same_prototypes_where_no_two_are_equally_dense(features):
    assume(clear_cut(features))
    similar = equations.pair_similarities(features)
    density = equations.densities(similar)
    assume(len(set(density)) == len(density))
    shuffle = order(len(features))
    found = p.select_prototypes(real(features)[shuffle], 2)
    assert shuffle[found].tolist() == p.select_prototypes(real(features), 2).tolist()


def test_densities_and_closeness_worked_by_hand():
    # 25 entries; from the largest down the 10th is the second of the six 0.98, so S_c is 0.98. The first row has one
    # above it (its own), one at it and three below: -2.
    similar = real(
        [
            [1.00, 0.98, 0.94, 0.87, 0.00],
            [0.98, 1.00, 0.98, 0.94, 0.17],
            [0.94, 0.98, 1.00, 0.98, 0.34],
            [0.87, 0.94, 0.98, 1.00, 0.50],
            [0.00, 0.17, 0.34, 0.50, 1.00],
        ]
    )
    density = p.densities(similar)
    assert density.tolist() == [-2, -1, -1, -2, -3]
    # the two densest have the least of their rows, the others the most similar denser image
    assert p.closeness(similar, density).tolist() == [0.98, 0.17, 0.34, 0.98, 0.50]


def test_a_copy_of_a_denser_image_is_no_prototype_before_all_others_are():
    rows = [[1.0, 0.0], [1.0, 0.01], [1.0, -0.01], [1.0, 0.3], [-1.0, 1.0]]
    chosen = p.select_prototypes(torch.tensor(rows), count=5).tolist()
    assert chosen[0] == 0
    assert chosen.index(4) < chosen.index(1)
    assert chosen.index(4) < chosen.index(2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [torch.zeros, torch.ones], ids=["zero features", "equal features"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_images_that_cannot_be_told_apart_give_prototypes_all_the_same(dtype, rows, count):
    features = rows(count, 4, dtype=dtype)
    similar = p.pair_similarities(features)
    density = p.densities(similar)
    assert torch.isfinite(torch.stack([density, p.closeness(similar, density)])).all()
    assert density.dtype == dtype
    assert len(p.select_prototypes(features, 3)) == min(count, 3)


def test_one_image_is_its_own_prototype():
    similar = p.pair_similarities(torch.tensor([[3.0, 4.0]]))
    assert p.densities(similar).tolist() == [0.0]
    assert p.select_prototypes(torch.tensor([[3.0, 4.0]]), 3).tolist() == [0]


@given(drawn=classes_of_prototypes())
def test_mean_similarities_are_mean_cosines(drawn):
    features, prototypes = drawn
    found = p.mean_similarities(real(features), *padded(prototypes, len(features[0])))
    for i, feature in enumerate(features):
        for name, rows in enumerate(prototypes):
            expected = [equations.cosine(feature, row) for row in rows]
            mean = sum(expected) / len(rows) if rows else -torch.inf
            assert float(found[i, name]) == pytest.approx(mean, abs=1e-12)


@given(drawn=classes_of_prototypes())
def test_the_class_of_the_largest_mean_is_the_corrected_label(drawn):
    features, prototypes = drawn
    found = p.mean_similarities(real(features), *padded(prototypes, len(features[0])))
    for feature, row in zip(features, found, strict=True):
        best = row.sort(descending=True).values
        if best[0] - best[1] > 1e-9:
            assert int(row.argmax()) == equations.corrected_label(feature, prototypes)


@given(drawn=classes_of_prototypes(), factor=st.floats(0.1, 100))
def test_mean_similarities_follow_the_images_and_forget_all_lengths(drawn, factor):
    features, prototypes = drawn
    tensor, present = padded(prototypes, len(features[0]))
    straight, shuffle = p.mean_similarities(real(features), tensor, present), order(len(features))
    assert_close(p.mean_similarities(real(features)[shuffle], tensor, present), straight[shuffle])
    assert_close(p.mean_similarities(real(features) * factor, tensor, present), straight)
    assert_close(p.mean_similarities(real(features), tensor * factor, present), straight)
    assert_close(p.mean_similarities(real(features), tensor.flip(1), present.flip(1)), straight)


def test_a_class_without_prototypes_wins_no_comparison():
    features = torch.tensor([[-1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])
    prototypes = torch.tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 0.0]]])
    present = torch.tensor([[False], [True], [False]])
    found = p.mean_similarities(features, prototypes, present)
    assert found.argmax(dim=1).tolist() == [1, 1, 1]
    assert not found.isnan().any()
