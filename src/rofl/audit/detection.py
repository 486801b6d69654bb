"""How well wrong labels were found, where the truth is known (the paper's table "Noisy label detection")."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Detection:
    """Precision: flagged labels that are wrong. Recall: wrong labels that are flagged. None where nothing to count."""

    precision: float | None
    recall: float | None


def detection(flagged: Tensor, wrong: Tensor) -> Detection:
    """Compare flags with the truth, both masks (n,).

    >>> import torch
    >>> detection(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    Detection(precision=0.5, recall=1.0)
    """
    hits = int((flagged & wrong).sum())
    found, there = int(flagged.sum()), int(wrong.sum())
    return Detection(hits / found if found else None, hits / there if there else None)
