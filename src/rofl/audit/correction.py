"""Correction of labels by an audit and by people, with the expected number of wrong labels before and after."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.audit.suspects import JudgedLabels

MIN_CONFIDENCE = 0.9  # probability from which on a suggestion replaces a label


@dataclass(frozen=True)
class Correction:
    """Corrected labels, with the expected numbers of wrong labels by the audit's probabilities."""

    labels: Tensor  # (n,)
    changed: int
    left: int  # flagged labels that are kept, because no suggestion is probable enough
    wrong_before: float
    wrong_after: float


def correct_labels(
    labels: Tensor,
    judged: JudgedLabels,
    decisions: Mapping[int, int] | None = None,
    min_confidence: float = MIN_CONFIDENCE,
) -> Correction:
    """Replace flagged labels by suggestions that are probable enough, and by the decisions of people.

    Args:
        labels: (n,) as given.
        judged: the audit of these labels.
        decisions: the right class of samples that people reviewed, by index; they override the audit.
        min_confidence: the probability from which on a suggestion replaces a flagged label; with a value above 1,
            only decisions replace labels.

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
