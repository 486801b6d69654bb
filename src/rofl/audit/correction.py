"""Labels corrected by an audit and by people, and how many wrong ones are to be expected before and after."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.audit.suspects import JudgedLabels

MIN_CONFIDENCE = 0.9  # of a suggestion that takes the place of a label


@dataclass(frozen=True)
class Correction:
    """Corrected labels. The numbers of wrong ones are expectations by the audit's probabilities."""

    labels: Tensor  # (n,)
    changed: int
    left: int  # labels that look wrong and stay as given: no suggestion is probable enough
    wrong_before: float
    wrong_after: float


def correct_labels(
    labels: Tensor,
    judged: JudgedLabels,
    decisions: Mapping[int, int] | None = None,
    min_confidence: float = MIN_CONFIDENCE,
) -> Correction:
    """Replace labels by their suggestions where these are probable enough, and by what people decided.

    Args:
        labels: (n,) as given.
        judged: the audit of these labels.
        decisions: the right class of samples that people looked at, by the sample's place; they count more.
        min_confidence: from which probability on a suggestion takes the place of a label that looks wrong; above 1,
            only decisions count.

    >>> judged = JudgedLabels(
    ...     flagged=torch.tensor([True, True, False]),
    ...     suggested=torch.tensor([1, 1, 0]),
    ...     score=torch.tensor([0.95, 0.6, 0.1]),
    ...     confidence=torch.tensor([0.95, 0.6, 0.9]),
    ...     doubt=torch.tensor([0.9, 0.5, 0.1]),
    ... )
    >>> found = correct_labels(torch.tensor([0, 0, 0]), judged)
    >>> found.labels.tolist(), found.changed, found.left, round(found.wrong_before, 2), round(found.wrong_after, 2)
    ([1, 0, 0], 1, 1, 1.65, 0.75)
    """
    replaced = judged.flagged & (judged.confidence >= min_confidence)  # (n,)
    corrected = torch.where(replaced, judged.suggested, labels)
    before = judged.score.double().clone()  # (n,) the probability that a label is wrong
    after = torch.where(replaced, 1 - judged.confidence.double(), before)
    undecided = torch.ones_like(judged.flagged)
    for place, label in (decisions or {}).items():
        before[place] = float(label != int(labels[place]))
        after[place] = 0.0
        corrected[place] = label
        undecided[place] = False
    return Correction(
        labels=corrected,
        changed=int((corrected != labels).sum()),
        left=int((judged.flagged & ~replaced & undecided).sum()),
        wrong_before=float(before.sum()),
        wrong_after=float(after.sum()),
    )
