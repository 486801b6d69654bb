"""Metrics of wrong-label detection, where the true labels are known."""

from dataclasses import dataclass

from torch import Tensor

from rofl.audit.suspects import Suspects
from rofl.core.classification import reliability


@dataclass(frozen=True)
class Detection:
    """Precision and recall of flags, each None where its denominator is zero."""

    precision: float | None  # of the flagged labels, the share that is wrong
    recall: float | None  # of the wrong labels, the share that is flagged

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None where one of them is.

        >>> Detection(0.5, 1.0).f1
        0.6666666666666666
        """
        if self.precision is None or self.recall is None:
            return None
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def detection(flagged: Tensor, wrong: Tensor) -> Detection:
    """Return precision and recall of flags, as in the paper's table "Noisy label detection".

    Args:
        flagged: (n,) mask of the labels that are taken for wrong.
        wrong: (n,) mask of those that are.

    >>> import torch
    >>> detection(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    Detection(precision=0.5, recall=1.0)
    """
    hits, flagged_count, wrong_count = int((flagged & wrong).sum()), int(flagged.sum()), int(wrong.sum())
    return Detection(hits / flagged_count if flagged_count else None, hits / wrong_count if wrong_count else None)


def average_precision(score: Tensor, wrong: Tensor) -> float | None:
    """Return the area under the precision-recall curve of a ranking.

    It rates the order of the list, whatever number of suspects a reader has time for.

    Args:
        score: (n,) suspicion, higher where the label is more doubtful.
        wrong: (n,) mask of the labels that are wrong.

    Returns:
        The average precision, or None where no label is wrong.

    >>> import torch
    >>> average_precision(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    from sklearn.metrics import average_precision_score  # slow to import

    return float(average_precision_score(wrong.numpy(), score.numpy())) if bool(wrong.any()) else None


def calibration_error(score: Tensor, wrong: Tensor) -> float | None:
    """Return how far scores are from being probabilities: the expected calibration error, in ten bins.

    Args:
        score: (n,) as probabilities that a label is wrong.
        wrong: (n,) mask of the labels that are wrong.

    Returns:
        A share, or None for no samples.

    >>> import torch
    >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([True, False])), 2)
    0.4
    """
    if not len(score):
        return None
    return sum(each.gap * each.samples for each in reliability(score, wrong)) / len(score)


def suggestion_accuracy(suspects: Suspects, truth: Tensor, wrong: Tensor) -> float | None:
    """Return how often a suggestion is right, among the wrong labels that are flagged.

    Args:
        suspects: the flags and suggestions of n samples.
        truth: (n,) true classes.
        wrong: (n,) mask of the labels that are wrong.

    Returns:
        A share, or None where no wrong label is flagged.
    """
    hits = suspects.flagged & wrong
    return float((suspects.suggested == truth)[hits].double().mean()) if bool(hits.any()) else None
