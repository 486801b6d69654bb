"""Near-duplicates and outliers are found where a test has put them, and nowhere else."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import rofl
from rofl.audit.sample_issues import SampleIssue, find_issues, nearest
from rofl.audit.suspect_list import read_issues, sort_issues, write_issues
from rofl.data import Dataset
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.transforms import Identity
from rofl.data.user.text_encoder import TextEncoder
from rofl.errors import UserError

CLIENTS, EACH = ("north", "south"), 30


def made(pixels: Tensor, labels: Tensor | None = None) -> FederatedDataset:
    """Samples (60, C, H, W) of two clients."""
    labels = torch.arange(60) % 3 if labels is None else labels
    split = rofl.preset("digits", clients=2, cohort=1).split
    images = Dataset(
        name="made",
        classes=("cat", "dog", "ox"),
        train=pixels,
        train_labels=labels,
        test=pixels[:1],
        test_labels=labels[:1],
        transform=Identity((), ()),
        owners=torch.arange(60) // EACH,
        clients=CLIENTS,
    )
    spec = replace(split, data=split.data.model_copy(update={"partition": "natural"}))
    return FederatedDataset(images, labels, [torch.arange(EACH), torch.arange(EACH, 2 * EACH)], spec)


@pytest.fixture(scope="module")
def noise() -> Tensor:
    return torch.randint(0, 256, (60, 3, 24, 20), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_ordinary_samples_have_no_issues(noise: Tensor) -> None:
    features = torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
    assert find_issues(made(noise), features) == []


def test_a_brighter_copy_is_a_near_duplicate_and_its_label_is_compared(noise: Tensor) -> None:
    pixels = noise.clone()
    pixels[7] = (pixels[3].float() * 0.9 + 20).byte()
    pixels[45] = pixels[8]  # another client's: nobody is told
    pixels[51] = pixels[48]
    issues = find_issues(made(pixels), torch.randn(60, 8, generator=torch.Generator().manual_seed(1)))
    assert [(issue.kind, issue.client, issue.row, issue.other_row) for issue in issues] == [
        ("near duplicate", "north", 7, 3),
        ("near duplicate", "south", 51, 48),
    ]
    assert [issue.labels_differ for issue in issues] == [True, False]
    assert all(issue.score > 0.95 for issue in issues)


def test_a_sample_unlike_all_others_is_an_outlier(noise: Tensor) -> None:
    features = torch.ones(60, 8) + 0.05 * torch.randn(60, 8, generator=torch.Generator().manual_seed(1))
    features[12] = torch.tensor([1.0, -1] * 4)
    (issue,) = find_issues(made(noise), features)
    assert (issue.kind, issue.row, issue.client, issue.other) == ("outlier", 12, "north", "")
    assert issue.score > 0.9
    features[12] = torch.nan  # training may have diverged
    assert [issue.row for issue in find_issues(made(noise), features)] == [12]


def test_rows_of_a_table_are_compared_by_their_cells() -> None:
    rows = torch.randn(60, 5, 1, 1, generator=torch.Generator().manual_seed(2))
    rows[20] = rows[10] * 1.001
    issues = find_issues(made(rows), torch.randn(60, 8, generator=torch.Generator().manual_seed(1)))
    assert [(issue.kind, issue.row, issue.other_row) for issue in issues] == [("near duplicate", 20, 10)]


def test_texts_are_compared_by_their_words() -> None:
    encoder, words = TextEncoder(length=30), [f"word{number}" for number in range(400)]
    texts = [" ".join(words[(7 * row) % 380 : (7 * row) % 380 + 20]) for row in range(0, 120, 2)]
    texts[22] = " ".join([*reversed(texts[4].split()), "and", "more"])
    federated = made(encoder.transform([(text,) for text in texts]))
    federated = replace(federated, images=replace(federated.images, encoder=encoder))
    issues = find_issues(federated, torch.randn(60, 8, generator=torch.Generator().manual_seed(1)))
    assert [(issue.kind, issue.row, issue.other_row) for issue in issues] == [("near duplicate", 22, 4)]


def test_blank_and_equal_images_end_without_an_error() -> None:
    blank = torch.zeros(60, 1, 8, 8, dtype=torch.uint8)
    assert find_issues(made(blank), torch.zeros(60, 4)) == []
    same = torch.randint(0, 256, (1, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    issues = find_issues(made(same.expand(60, 1, 8, 8).clone()), torch.ones(60, 4))
    assert issues
    assert all(issue.score == 1 for issue in issues)


def test_few_samples_have_no_typical_distance() -> None:
    federated = load_federated(rofl.preset("digits", data__train=20, clients=4, cohort=1).split)
    assert find_issues(federated, torch.randn(20, 4)) == []


@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 1000))
def test_neighbours_are_those_of_all_pairs(count: int, dimensions: int, seed: int) -> None:
    points = torch.randn(count, dimensions, generator=torch.Generator().manual_seed(seed))
    distances, indices = nearest(points, 2)
    for row in range(count):
        cosine = [float(torch.cosine_similarity(points[row], other, dim=0)) for other in points]
        apart = sorted(1 - value for place, value in enumerate(cosine) if place != row)
        assert distances[row].tolist() == pytest.approx([max(value, 0) for value in apart[:2]], abs=1e-5)
        assert row not in indices[row]


def test_lists_are_read_as_they_were_written(tmp_path: Path) -> None:
    issues = [
        SampleIssue(3, "=1+1", 'a "b", c', "cat", "near duplicate", 0.25, "x\ny", 1, "dog"),
        SampleIssue(4, "=1+1", "d", "cat", "outlier", 0.75),
        SampleIssue(5, "=1+1", "e", "cat", "near duplicate", 0.5, "f", 2, "cat"),
    ]
    write_issues(tmp_path / "x.csv", issues)
    assert read_issues(tmp_path / "x.csv") == issues
    assert [issue.row for issue in sort_issues(issues)] == [3, 4, 5]  # labels that differ come first
    (tmp_path / "x.csv").write_text("sample,given\na,b\n")
    with pytest.raises(UserError, match=r"x.csv is not a list of issues"):
        read_issues(tmp_path / "x.csv")
