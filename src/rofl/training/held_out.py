"""Evaluations of a model between rounds, as counts that need no true labels."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from torch import Tensor


class HeldOut(BaseModel):
    """Counts of a model's predictions on held-out samples, by class.

    Attributes:
        predicted: (K,) how often the model predicts each class.
        labelled: (K,) how often each class occurs as a given label: among the same samples, or among the training
            samples if the held-out labels are the true ones.
        agreed: how many predictions equal the given label; None if the labels are the true ones, which must not
            influence any choice.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    predicted: list[int]
    labelled: list[int]
    agreed: int | None = None

    @property
    def samples(self) -> int:
        """The number of held-out samples."""
        return sum(self.predicted)

    @property
    def agreement(self) -> float | None:
        """The share of predictions that equal the given label, 0 to 1; None if the labels are the true ones."""
        return None if self.agreed is None or not self.samples else self.agreed / self.samples

    @property
    def majority(self) -> float:
        """The share of the most frequent label: the agreement of a model that always predicts it."""
        return max(self.labelled) / max(sum(self.labelled), 1)


@dataclass(frozen=True)
class Evaluation:
    """The evaluation of a model after a round.

    Attributes:
        accuracy: on the test set, in per cent; None if there is none.
        held_out: counts on held-out samples; None if they were not counted.
        voters: the number of sites that compared the model with their own local model.
        objections: the number of these that found it much worse.
        problem: the reason why the counts cannot be used, if a client must have corrupted them.
        suspects: the clients that did, if known.
    """

    accuracy: float | None = None
    held_out: HeldOut | None = None
    voters: int = 0
    objections: int = 0
    problem: str = ""
    suspects: tuple[int, ...] = ()


def count_agreement(logits: Tensor, labels: Tensor) -> HeldOut:
    """Count predictions, labels and their agreement on samples with given labels.

    Args:
        logits: (n, K) of the model.
        labels: (n,) given labels.
    """
    predicted, classes = logits.argmax(dim=1), logits.shape[1]
    return HeldOut(
        predicted=predicted.bincount(minlength=classes).tolist(),
        labelled=labels.bincount(minlength=classes).tolist(),
        agreed=int((predicted == labels).sum()),
    )


def count_classes(logits: Tensor, labels: Tensor) -> HeldOut:
    """Count predictions by class without using the samples' own labels, which are the true ones.

    Args:
        logits: (n, K) of the model.
        labels: (N,) given labels of the training samples.
    """
    classes = logits.shape[1]
    return HeldOut(
        predicted=logits.argmax(dim=1).bincount(minlength=classes).tolist(),
        labelled=labels.bincount(minlength=classes).tolist(),
    )
