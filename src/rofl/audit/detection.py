"""How well wrong labels were found, where the truth is known."""

from dataclasses import dataclass

from torch import Tensor

from rofl.audit.suspects import Suspects


@dataclass(frozen=True)
class Detection:
    """Precision: flagged labels that are wrong. Recall: wrong labels that are flagged. None where nothing to count."""

    precision: float | None
    recall: float | None

    @property
    def f1(self) -> float | None:
        """Their harmonic mean.

        >>> Detection(0.5, 1.0).f1
        0.6666666666666666
        """
        if self.precision is None or self.recall is None:
            return None
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


def detection(flagged: Tensor, wrong: Tensor) -> Detection:
    """Compare flags with the truth, both masks (n,) (the paper's table "Noisy label detection").

    >>> import torch
    >>> detection(torch.tensor([True, True, False]), torch.tensor([True, False, False]))
    Detection(precision=0.5, recall=1.0)
    """
    hits = int((flagged & wrong).sum())
    found, there = int(flagged.sum()), int(wrong.sum())
    return Detection(hits / found if found else None, hits / there if there else None)


def average_precision(score: Tensor, wrong: Tensor) -> float | None:
    """The area under precision over recall, for any number of suspects that somebody has time for; None without wrong.

    >>> import torch
    >>> average_precision(torch.tensor([0.9, 0.8, 0.1]), torch.tensor([True, False, True]))
    0.8333333333333333
    """
    from sklearn.metrics import average_precision_score  # slow to import

    return float(average_precision_score(wrong.numpy(), score.numpy())) if bool(wrong.any()) else None


def suggestion_accuracy(suspects: Suspects, truth: Tensor, wrong: Tensor) -> float | None:
    """Of the wrong labels (n,) that are flagged, the share whose suggestion is the true class (n,)."""
    found = suspects.flagged & wrong
    return float((suspects.suggested == truth)[found].double().mean()) if bool(found.any()) else None
