"""How many labels are wrong, and in which way, as a model sees it: no true label is needed.

Q denotes the noise matrix (K, K), Q[i, j] = P(label = j | class = i).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def noise_ratio(flagged: Tensor) -> float:
    """Return the share of labels that are flagged, of a mask (n,); 0 for no samples.

    >>> noise_ratio(torch.tensor([True, False, False, False]))
    0.25
    """
    return float(flagged.double().mean()) if len(flagged) else 0.0


def noise_interval(flagged: Tensor, score: Tensor, doubt: Tensor) -> tuple[float, float]:
    """Return bounds of the share of wrong labels among n samples.

    Three estimates differ in what they take for noise: the share that is flagged, the mean score, and the mean of what
    the model by itself leaves to other classes than the label's. The last is high for a model that is unsure of many
    samples, and the first two are low for one that has learnt wrong labels by heart. The bounds are the lowest of the
    first two and the highest of all, each with 1.96 standard deviations of the number of wrong labels and, as in the
    rule of three, three samples more.

    Args:
        flagged: (n,) whether another class is more probable than the label.
        score: (n,) the probability that the label is wrong.
        doubt: (n,) 1 - the model's probability of the label.

    >>> clean = torch.zeros(100)
    >>> noise_interval(clean.bool(), clean, clean)
    (0.0, 0.03)
    """
    count = len(score)
    if not count:
        return 0.0, 1.0
    shares = float(flagged.double().mean()), float(score.double().mean())
    deviation = float((score.double() * (1 - score.double())).sum()) ** 0.5
    margin = (1.96 * deviation + 3) / count
    return max(0.0, min(shares) - margin), min(1.0, max(*shares, float(doubt.double().mean())) + margin)


def scores_are_unsure(expected: float, unflagged: float) -> bool:
    """Return whether a model is too unsure to tell how many labels are wrong.

    A model that has learnt nothing is unsure of every label and flags few of them. Its scores then add up to many wrong
    labels, whether there are any or not.

    Args:
        expected: the sum of the scores of the labels that are not flagged, or their share of all.
        unflagged: the number of these labels, or their share.

    >>> scores_are_unsure(4, 400), scores_are_unsure(300, 400)
    (False, True)
    """
    return 3 * expected >= unflagged > 0


def interval_text(interval: Sequence[float]) -> str:
    """Return bounds of a share for people.

    >>> interval_text((0.1, 0.25)), interval_text((0.0, 0.03))
    ('10 to 25 %', 'no more than 3 %')
    """
    low, high = (100 * bound for bound in interval)
    return f"no more than {math.ceil(high)} %" if low < 0.5 else f"{math.floor(low)} to {math.ceil(high)} %"


def transition_counts(given: Tensor, suggested: Tensor, classes: int) -> Tensor:
    """Count how often class i, by the model, is labelled j.

    Counts of several clients may be added.

    Args:
        given: (n,) labels.
        suggested: (n,) classes by the model.
        classes: K.

    Returns:
        (K, K) counts.

    >>> transition_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    return torch.bincount(suggested * classes + given, minlength=classes * classes).view(classes, classes)


def discount_memorized(matrix: Tensor, learnt: float) -> Tensor:
    """Return Q for a model that has learnt part of the noise: what the label still says besides the model.

    Such a model knows the label already, and Bayes' rule would count it twice. So the weight of a right label,
    Q[j, j], is drawn geometrically to that of the most frequent wrong one, the largest other Q[i, j]: with learnt = 1
    a label says only which classes it may come from. Rows no longer sum to 1.

    Args:
        matrix: (K, K) Q.
        learnt: 0 to 1, see `memorized_share`.

    >>> matrix = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    >>> discount_memorized(matrix, learnt=1.0).diagonal()
    tensor([0.2000, 0.2000, 0.1000], dtype=torch.float64)
    """
    right = matrix.double().diagonal()  # (K,)
    off_diagonal = matrix.double() - right.diag()
    wrong = off_diagonal.amax(dim=0)  # (K,)
    ratio = torch.where((wrong > 0) & (wrong < right), wrong / right, 1.0)  # a label that is never wrong stays
    return off_diagonal + (right * ratio**learnt).diag()
