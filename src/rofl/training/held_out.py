"""Evaluations of a model between rounds, as counts that use no true label."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from torch import Tensor


class HeldOut(BaseModel):
    """A model's predictions on samples that it was not trained with, counted by class.

    Attributes:
        predicted: (K,) how often the model predicts each class.
        labelled: (K,) how often each class is given as a label: by the labels of the same samples if these are as
            given, else by those of the training samples.
        agreed: how many samples are predicted as they are labelled; None if their labels are the true ones, by
            which nothing may be chosen.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    predicted: list[int]
    labelled: list[int]
    agreed: int | None = None

    @property
    def samples(self) -> int:
        """The number of samples that were predicted."""
        return sum(self.predicted)

    @property
    def agreement(self) -> float | None:
        """The share of samples that are predicted as labelled, 0 to 1; None if nothing may be chosen by it."""
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
        held_out: counts on samples that are not trained with; None if they were not counted.
        voters: how many sites compared it with the models that they trained themselves.
        objections: how many of them found it worse by far.
        problem: why the counts cannot be used, if a client must have corrupted them.
        suspects: the clients that did, if they are known.
    """

    accuracy: float | None = None
    held_out: HeldOut | None = None
    voters: int = 0
    objections: int = 0
    problem: str = ""
    suspects: tuple[int, ...] = ()


def count_agreement(logits: Tensor, labels: Tensor) -> HeldOut:
    """Count predictions and labels by class, and their agreement, on samples with their given labels.

    Args:
        logits: (n, K) of the model.
        labels: (n,) as given.
    """
    predicted, classes = logits.argmax(dim=1), logits.shape[1]
    return HeldOut(
        predicted=predicted.bincount(minlength=classes).tolist(),
        labelled=labels.bincount(minlength=classes).tolist(),
        agreed=int((predicted == labels).sum()),
    )


def count_classes(logits: Tensor, labels: Tensor) -> HeldOut:
    """Count predictions by class without looking at the samples' own labels, which are the true ones.

    Args:
        logits: (n, K) of the model.
        labels: (N,) as given, of the training samples.
    """
    classes = logits.shape[1]
    return HeldOut(
        predicted=logits.argmax(dim=1).bincount(minlength=classes).tolist(),
        labelled=labels.bincount(minlength=classes).tolist(),
    )
