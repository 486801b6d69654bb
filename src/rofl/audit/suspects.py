"""Detection of labels that look wrong, with a suggested class for each, and metrics if the true labels are known."""

from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.audit.noise_estimation import estimate_matrix
from rofl.core.centroids import similarity_labels
from rofl.core.classification import reliability
from rofl.core.noise_posterior import label_posterior


@dataclass(frozen=True)
class Suspects:
    """A judgement of n labels, in the samples' order."""

    flagged: Tensor  # (n,) whether another class is more probable than the label
    suggested: Tensor  # (n,) the most probable class; the label itself if it is not flagged
    score: Tensor  # (n,) the probability that the label is wrong

    def order(self) -> Tensor:
        """Return the indices (n,) of the samples, most suspicious first; equal scores keep their order."""
        return self.score.argsort(descending=True, stable=True)


@dataclass(frozen=True)
class JudgedLabels(Suspects):
    """A judgement of n labels with the additional values for corrections and noise estimates."""

    confidence: Tensor  # (n,) the probability of the suggested class
    doubt: Tensor  # (n,) 1 - the model's probability of the label, regardless of the noise


def find_suspects(labels: Tensor, probabilities: Tensor, matrix: Tensor | None = None) -> JudgedLabels:
    """Judge labels by a model's probabilities and the label noise.

    Each site of a federation calls this with its own samples and the matrix that the coordinator estimated from the
    sums of all sites; a run on one machine estimates the matrix from all samples. A site that sent no sums has no
    matrix and estimates one from its own samples.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
        matrix: (K, K) the noise, Q[i, j] = P(label = j | class = i); by default estimated from these samples
            (`estimate_matrix`).

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.1, 0.9]])
    >>> find_suspects(torch.tensor([0, 0, 1, 1, 0]), p).flagged
    tensor([False, False, False, False,  True])
    """
    if matrix is None:
        matrix = estimate_matrix(labels, probabilities)
    posterior = label_posterior(labels, probabilities, matrix)  # (n, K)
    given = posterior.gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,) probability of the given label
    best, suggested = posterior.max(dim=1)
    suggested = torch.where(given == best, labels, suggested)  # a tie is decided in favour of the label
    doubt = 1 - probabilities.double().gather(1, labels.unsqueeze(1)).squeeze(1)  # (n,)
    return JudgedLabels(suggested != labels, suggested, (1 - given).clamp(0, 1), best, doubt.clamp(0, 1))


def centroid_disagrees(labels: Tensor, features: Tensor, centroids: Tensor) -> Tensor:
    """Return the mask (n,) of labels that Eq. 7 does not trust: the most similar centroid belongs to another class.

    Args:
        labels: (n,) given labels.
        features: (n, d) of the samples.
        centroids: (K, d) of the classes.

    >>> centroid_disagrees(torch.tensor([0, 0]), torch.eye(2), torch.eye(2))
    tensor([False,  True])
    """
    return similarity_labels(features, centroids) != labels


@dataclass(frozen=True)
class Detection:
    """Precision and recall of flags; each is None if its denominator is zero."""

    precision: float | None  # share of the flagged labels that are wrong
    recall: float | None  # share of the wrong labels that are flagged

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None if one of them is None.

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
        flagged: (n,) mask of the labels that are flagged as wrong.
        wrong: (n,) mask of the labels that are wrong.

    >>> import torch
    >>> detection(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    Detection(precision=0.5, recall=1.0)
    """
    hits, flagged_count, wrong_count = int((flagged & wrong).sum()), int(flagged.sum()), int(wrong.sum())
    return Detection(hits / flagged_count if flagged_count else None, hits / wrong_count if wrong_count else None)


def average_precision(score: Tensor, wrong: Tensor) -> float | None:
    """Return the area under the precision-recall curve of a ranking.

    It rates the order of the list, independently of how many suspects are reviewed.

    Args:
        score: (n,) suspicion; a higher score means a more doubtful label.
        wrong: (n,) mask of the labels that are wrong.

    Returns:
        The average precision, or None if no label is wrong.

    >>> import torch
    >>> average_precision(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    from sklearn.metrics import average_precision_score  # slow to import

    return float(average_precision_score(wrong.numpy(), score.numpy())) if bool(wrong.any()) else None


def calibration_error(score: Tensor, wrong: Tensor) -> float | None:
    """Return the expected calibration error of the scores as probabilities, in ten bins.

    Args:
        score: (n,) probabilities that a label is wrong.
        wrong: (n,) mask of the labels that are wrong.

    Returns:
        A value in [0, 1], or None if there are no samples.

    >>> import torch
    >>> round(calibration_error(torch.tensor([0.9, 0.9]), torch.tensor([True, False])), 2)
    0.4
    """
    if not len(score):
        return None
    return sum(each.gap * each.samples for each in reliability(score, wrong)) / len(score)


def suggestion_accuracy(suspects: Suspects, truth: Tensor, wrong: Tensor) -> float | None:
    """Return the share of right suggestions among the wrong labels that are flagged.

    Args:
        suspects: the flags and suggestions of n samples.
        truth: (n,) true classes.
        wrong: (n,) mask of the labels that are wrong.

    Returns:
        A value in [0, 1], or None if no wrong label is flagged.
    """
    hits = suspects.flagged & wrong
    return float((suspects.suggested == truth)[hits].double().mean()) if bool(hits.any()) else None
