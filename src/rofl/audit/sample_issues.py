"""Near-duplicates and outliers: issues of samples, whatever their labels.

Both are searched among the samples of one client, because its list must not reveal samples of other clients.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, normalize

from rofl.data.dataset import Dataset
from rofl.data.federated import FederatedDataset
from rofl.data.image_store import gather

IssueKind = Literal["near duplicate", "outlier"]

_MOST_SAMPLES = 10_000  # of a client; the time grows quadratically
_MIN_SAMPLES = 10  # with fewer there is no typical distance
_NEIGHBOURS = 10  # an outlier has a large mean distance to this many neighbours
_DUPLICATE_SHARE = 0.13  # of the median distance to the nearest neighbour; the share that cleanlab uses
_FAR_OUT = 3.0  # interquartile ranges above the third quartile: Tukey's fence for "far out"
_SIDE = 16  # images are reduced to this many pixels before they are compared
_WORD_BUCKETS = 1024  # hash buckets for counting the words of a text
_CHUNK = 1000  # samples compared with all others at a time


@dataclass(frozen=True)
class SampleIssue:
    """A sample that is nearly identical to another one, or unlike all others."""

    row: int  # index in the training set
    client: str
    sample: str  # its name, or its number
    given: str  # the class of its label
    kind: IssueKind
    score: float  # 0 to 1; higher is worse
    other: str = ""  # the other sample of a near-duplicate
    other_row: int = -1
    other_given: str = ""  # and its label

    @property
    def labels_differ(self) -> bool:
        """Whether two near-duplicates have different labels, so that at least one is wrong."""
        return self.kind == "near duplicate" and self.given != self.other_given


def find_issues(federated: FederatedDataset, features: Tensor) -> list[SampleIssue]:
    """Return the issues of all clients with 10 to 10,000 samples, worst first within a client.

    Near-duplicates are found by their pixels (or the encoded cells of a table, or the words of a text), not by a
    model's features. The later sample of a pair is listed. Outliers are far from the ten samples with the most similar
    features.

    Args:
        federated: the samples.
        features: (N, d) of a model.
    """
    found = []
    for client, rows in federated.client_views:
        if _MIN_SAMPLES <= len(rows) <= _MOST_SAMPLES:
            pairs = _duplicates(_compared(federated.images, rows))
            outliers = _outliers(features[rows].float().nan_to_num())
            issues = [*_pair_issues(federated, client, rows, pairs)]
            issues += _outlier_issues(federated, client, rows, outliers)
            found += sorted(issues, key=lambda issue: (issue.kind, -issue.score, issue.row))
    return found


def nearest(points: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the cosine distances to the nearest other points, and their indices, both (n, count), nearest first.

    Args:
        points: (n, d) with n > count; an all-zero point has distance 1 to all others.
        count: the number of neighbours.

    >>> nearest(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]]), 1)[1].flatten()
    tensor([2, 2, 0])
    """
    unit = normalize(points, dim=1)
    distances, indices = [], []
    for start in range(0, len(unit), _CHUNK):
        apart = 1 - unit[start : start + _CHUNK] @ unit.T  # (B, n)
        own = torch.arange(len(apart))
        apart[own, own + start] = torch.inf
        closest = apart.topk(count, dim=1, largest=False)
        distances.append(closest.values.clamp(min=0))
        indices.append(closest.indices)
    return torch.cat(distances), torch.cat(indices)


def _compared(images: Dataset, rows: Tensor) -> Tensor:
    """Return samples as points (n, d) whose cosine distance measures how similar they look, except for brightness."""
    parts = []
    for chunk in rows.split(_CHUNK):
        pixels = gather(images.train, chunk).float()  # (B, C, H, W)
        if images.is_text:
            parts.append(_count_words(pixels.flatten(1)))
            continue
        if pixels.shape[2] > _SIDE or pixels.shape[3] > _SIDE:
            pixels = adaptive_avg_pool2d(pixels, _SIDE)
        flat = pixels.flatten(1)
        parts.append(flat - flat.mean(dim=1, keepdim=True))
    return torch.cat(parts)


def _count_words(numbers: Tensor) -> Tensor:
    """Return the word counts per bucket (B, 1024) of texts (B, length); 0 is padding."""
    counts = torch.zeros(len(numbers), _WORD_BUCKETS)
    return counts.scatter_add_(1, (numbers % _WORD_BUCKETS).long(), (numbers > 0).float())


def _duplicates(points: Tensor) -> list[tuple[int, int, float]]:
    """Return pairs (later, earlier, score) of a point and its nearest neighbour that are unusually close."""
    distances, indices = (column[:, 0] for column in nearest(points, 1))
    typical = float(distances.median())
    limit = _DUPLICATE_SHARE * typical
    pairs = {}
    for place in (distances <= limit).nonzero().flatten().tolist():
        other, distance = int(indices[place]), float(distances[place])
        pairs[max(place, other), min(place, other)] = 1 - distance / typical if typical else 1.0
    return [(later, earlier, score) for (later, earlier), score in pairs.items()]


def _outliers(features: Tensor) -> list[tuple[int, float]]:
    """Return (index, score) of the samples whose mean distance to their neighbours is far out."""
    distances = nearest(features, min(_NEIGHBOURS, len(features) - 1))[0].mean(dim=1)  # (n,)
    low, middle, high = distances.quantile(torch.tensor([0.25, 0.5, 0.75], dtype=distances.dtype)).tolist()
    fence = high + _FAR_OUT * (high - low)
    places = (distances > fence).nonzero().flatten().tolist() if high > low else []
    return [(place, 1 - middle / float(distances[place])) for place in places]


def _pair_issues(
    federated: FederatedDataset, client: str, rows: Tensor, pairs: list[tuple[int, int, float]]
) -> Iterator[SampleIssue]:
    for later, earlier, score in pairs:
        row, other = int(rows[later]), int(rows[earlier])
        names, labels = _describe(federated, row), _describe(federated, other)
        yield SampleIssue(row, client, *names, "near duplicate", round(score, 4), labels[0], other, labels[1])


def _outlier_issues(
    federated: FederatedDataset, client: str, rows: Tensor, outliers: list[tuple[int, float]]
) -> Iterator[SampleIssue]:
    for place, score in outliers:
        row = int(rows[place])
        yield SampleIssue(row, client, *_describe(federated, row), "outlier", round(score, 4))


def _describe(federated: FederatedDataset, row: int) -> tuple[str, str]:
    """Return the name and the given label of a sample."""
    images = federated.images
    name = images.ids[row] if images.ids else str(row)
    return name, images.classes[int(federated.labels[row])]
