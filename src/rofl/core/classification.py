"""Metrics of a classifier from labels and probabilities: accuracy, per-class metrics, confusions, calibration."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

BINS = 10  # of confidence, from 0 to 1, in the reliability diagram


@dataclass(frozen=True)
class ClassMetrics:
    """Precision, recall and F1 of one class; None if the denominator is zero.

    Attributes:
        name: the class.
        support: the number of samples with this label.
        predicted: the number of samples that are predicted as this class.
        precision: the share of `predicted` that has this label.
        recall: the share of `support` that is predicted as this class.
        f1: the harmonic mean of precision and recall.
    """

    name: str
    support: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class ReliabilityBin:
    """A bin of a reliability diagram: samples whose confidence (probability of the predicted class) lies in a range.

    Attributes:
        low: the lower edge, exclusive except for 0.
        high: the upper edge, inclusive.
        samples: the number of samples in the bin.
        confidence: their mean confidence; None for an empty bin.
        accuracy: the share of them whose prediction equals the label; None for an empty bin.
    """

    low: float
    high: float
    samples: int
    confidence: float | None
    accuracy: float | None

    @property
    def gap(self) -> float:
        """The distance between confidence and accuracy; 0 if there are no samples."""
        return 0.0 if self.confidence is None or self.accuracy is None else abs(self.confidence - self.accuracy)


@dataclass(frozen=True)
class Classification:
    """Metrics of predictions against labels.

    Attributes:
        samples: the number of predictions.
        accuracy: the share of predictions that equal the label, in per cent.
        classes: the metrics of each class.
        confusion: (K, K) samples by label (row) and prediction (column).
        calibration_error: the expected calibration error (ECE) over ten bins.
        reliability: the bins.
    """

    samples: int
    accuracy: float
    classes: list[ClassMetrics]
    confusion: list[list[int]]
    calibration_error: float
    reliability: list[ReliabilityBin]


def class_probabilities(logits: Tensor) -> Tensor:
    """Return the softmax of logits, (n, K) float64; a row that overflows becomes uniform.

    >>> import torch
    >>> class_probabilities(torch.tensor([[0.0, 0.0], [float("inf"), 0.0]])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    return logits.double().softmax(dim=1).nan_to_num(1 / logits.shape[1])


def classification(labels: Tensor, probabilities: Tensor, names: Sequence[str]) -> Classification:
    """Return the metrics of predictions.

    Args:
        labels: (n,) with n > 0.
        probabilities: (n, K).
        names: of the K classes.

    >>> import torch
    >>> found = classification(torch.tensor([0, 1, 1]), torch.tensor([[0.8, 0.2], [0.4, 0.6], [0.6, 0.4]]), "ab")
    >>> round(found.accuracy, 1), found.confusion, round(found.calibration_error, 2)
    (66.7, [[1, 0], [1, 1]], 0.13)
    """
    confidence, predicted = probabilities.double().max(dim=1)
    right = predicted == labels
    confusion = (labels * len(names) + predicted).bincount(minlength=len(names) ** 2).view(len(names), -1)  # (K, K)
    bins = reliability(confidence, right)
    return Classification(
        samples=len(labels),
        accuracy=float(right.double().mean() * 100),
        classes=[_class_metrics(name, confusion, place) for place, name in enumerate(names)],
        confusion=confusion.tolist(),
        calibration_error=sum(each.gap * each.samples for each in bins) / len(labels),
        reliability=bins,
    )


def reliability(confidence: Tensor, right: Tensor) -> list[ReliabilityBin]:
    """Return the bins of a reliability diagram.

    Args:
        confidence: (n,) the probability of each predicted class.
        right: (n,) whether the prediction equals the label.
    """
    places = ((confidence * BINS).ceil().long() - 1).clamp(0, BINS - 1)
    counts = places.bincount(minlength=BINS).tolist()
    sums = places.bincount(confidence.double(), minlength=BINS).tolist()
    hits = places.bincount(right.double(), minlength=BINS).tolist()
    return [
        ReliabilityBin(place / BINS, (place + 1) / BINS, count, _share(total, count), _share(hit, count))
        for place, (count, total, hit) in enumerate(zip(counts, sums, hits, strict=True))
    ]


def _class_metrics(name: str, confusion: Tensor, place: int) -> ClassMetrics:
    hits, support = int(confusion[place, place]), int(confusion[place].sum())
    predicted = int(confusion[:, place].sum())
    f1 = _share(2 * hits, support + predicted)
    return ClassMetrics(name, support, predicted, _share(hits, predicted), _share(hits, support), f1)


def _share(part: float, whole: int) -> float | None:
    return part / whole if whole else None
