"""How wrong the labels are, as far as a model can tell: without any true label."""

import torch
from torch import Tensor

from rofl.core import noise

_CREDIBLE = 0.5  # a model that agrees with fewer labels than this says more about itself than about them


def noise_ratio(flagged: Tensor) -> float:
    """The share of labels that look wrong, of a mask (n,); 0 for no samples.

    >>> noise_ratio(torch.tensor([True, False, False, False]))
    0.25
    """
    return float(flagged.double().mean()) if len(flagged) else 0.0


def transition_counts(given: Tensor, suggested: Tensor, classes: int) -> Tensor:
    """How often class i, by the model, was labelled j: (K, K). Counts add up over clients.

    >>> transition_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    return torch.bincount(suggested * classes + given, minlength=classes * classes).view(classes, classes)


def transition(counts: Tensor) -> Tensor:
    """Q from counts, Q[i, j] = P(given = j | class = i); a class that was never suggested stays as it is.

    >>> transition(torch.tensor([[3, 1], [0, 0]]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]], dtype=torch.float64)
    """
    rows = counts.sum(dim=1, keepdim=True)  # (K, 1)
    stay = torch.eye(len(counts), dtype=torch.float64)
    return torch.where(rows > 0, counts.double() / rows.clamp(min=1), stay)


def noise_matrix(counts: Tensor) -> Tensor:
    """Q from counts, drawn towards symmetric noise as far as the counts look like it.

    `transition` alone would take every chance count, and every confusion of a weak model, for a habit of those who
    label. So it is mixed with the symmetric matrix of the same ratio, by the weight 1 - 1 / (chi-square per degree of
    freedom) that the first is given, 0 where that is negative (the idea of James and Stein). Where less than half of
    the labels agree with the model, symmetric noise of one half is all that is assumed.

    >>> noise_matrix(torch.tensor([[90, 10], [10, 90]]))
    tensor([[0.9000, 0.1000],
            [0.1000, 0.9000]], dtype=torch.float64)
    """
    classes = len(counts)
    rows = counts.sum(dim=1, keepdim=True).double()  # (K, 1)
    ratio = 1 - float(counts.diagonal().sum() / rows.sum().clamp(min=1))
    even = noise.symmetric(classes, min(ratio, 1 - _CREDIBLE))
    if not 0 < ratio <= 1 - _CREDIBLE:
        return even
    expected = rows * ratio / (classes - 1)  # (K, 1)
    counted = ~torch.eye(classes, dtype=torch.bool) & (rows > 0)
    distances = ((counts - expected) ** 2 / expected.clamp(min=torch.finfo(torch.float64).tiny))[counted]
    chi_square = float(distances.sum()) / max(len(distances) - 1, 1)  # per degree of freedom
    weight = max(0.0, 1 - 1 / chi_square) if chi_square > 0 else 0.0
    return weight * transition(counts) + (1 - weight) * even


def memorized_share(labels: Tensor, probabilities: Tensor) -> float:
    """How much of the noise stands in a model's probabilities (n, K) already, of labels (n,): 0 to 1.

    A model that was trained on noisy labels, and not protected from them, has learnt how they are distributed, and
    some of them by heart. Two shares tell, and the smaller counts, since each alone is high for another reason too:

    - of the disagreements between labels and model, those that the model itself expects: the mean of its doubt
      1 - max p over their share. Low for a model that is sure of its classes, whatever the labels are.
    - the disagreements where it doubts less than on average, against those everywhere. A wrong label can meet any
      sample; a mistake of the model, though the label is right, meets doubtful ones.

    Both come from sums, in two steps, since the first gives the mean that the second needs. A model that agrees with
    the labels no more often than chance has learnt nothing, and its doubt says nothing about them: 0.

    >>> sure, doubtful = torch.tensor([[0.99, 0.01]]), torch.tensor([[0.8, 0.2]])
    >>> labels = torch.tensor([0, 0, 0, 1]).repeat(100)
    >>> [round(memorized_share(labels, model.expand(400, 2)), 2) for model in (sure, doubtful)]
    [0.04, 0.8]
    """
    top, best = probabilities.double().max(dim=1)
    differs = (best != labels).double()  # (n,)
    chance = 1 / probabilities.shape[1]
    spread = (chance * (1 - chance) / max(len(labels), 1)) ** 0.5
    if not bool(differs.any()) or float(1 - differs.mean()) <= chance + 2 * spread:
        return 0.0
    doubt = 1 - top  # (n,)
    sure = doubt <= doubt.mean().clamp(min=doubt.min())  # rounding may put the mean below all
    share = differs.mean()
    return float(torch.minimum(doubt.mean() / share, differs[sure].mean() / share).clamp(max=1))


def discount_memorized(matrix: Tensor, learnt: float) -> Tensor:
    """Q (K, K) for a model that has learnt this share of the noise: what the label still tells beside it.

    By heart or as a probability, such a model knows the label, and Bayes' rule would count it twice. So the weight of
    a right label, Q[j, j], is drawn (geometrically) to that of the most usual wrong one, the largest other Q[i, j]:
    with learnt = 1 a label tells only which classes it may come from. Rows no longer sum to 1.

    >>> discount_memorized(torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]), learnt=1.0).diagonal()
    tensor([0.2000, 0.2000, 0.1000], dtype=torch.float64)
    """
    right = matrix.double().diagonal()  # (K,)
    others = matrix.double() - right.diag()
    wrong = others.amax(dim=0)  # (K,)
    ratio = torch.where((wrong > 0) & (wrong < right), wrong / right, 1.0)  # a label that is never wrong stays
    return others + (right * ratio**learnt).diag()
