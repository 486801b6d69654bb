"""Evaluations of a model between rounds, as counts that need no true labels."""

import math
from collections import deque
from dataclasses import dataclass
from statistics import fmean

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from rofl.core.held_out_fit import HeldOutEstimate, HeldOutSums

_STEPS = 2**12  # to which a rate of wrong labels is rounded
_WINDOW = 10  # evaluations; a lie about the agreement is forgotten after as many
_LEAST_ERROR = 0.03  # of an agreement; it varies as much between rounds of a good run
_MIN_SAMPLES = 50  # with fewer, the rate of their wrong labels is too uncertain for training to depend on it


class HeldOut(BaseModel):
    """Counts of a model's predictions on held-out samples, by class.

    Attributes:
        predicted: (K,) how often the model predicts each class.
        labelled: (K,) how often each class occurs as a given label: among the same samples, or among the training
            samples if the held-out labels are the true ones.
        agreed: how many predictions equal the given label; None if the labels are the true ones, which must not
            influence any choice.
        noise_rate: the share of wrong labels that was fitted to these samples; None if it was not fitted.
        noise_deviation: the standard deviation of that share.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    predicted: list[int]
    labelled: list[int]
    agreed: int | None = None
    noise_rate: float | None = None
    noise_deviation: float = 0.0

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


class HeldOutAverage:
    """What the evaluations of a run show, averaged over rounds; the newest has the weight of all before it."""

    def __init__(self) -> None:
        self._rate: tuple[float, float] | None = None  # share of wrong labels and its standard deviation
        self._agreements = deque[float](maxlen=_WINDOW)  # averaged, the newest last
        self._labelled: list[int] = []  # of the last evaluation
        self._found: dict[int, HeldOutEstimate] = {}  # by round

    def observe(self, held_out: HeldOut, index: int) -> None:
        """Add the evaluation of round `index`; labels that are the true ones do not count."""
        newest = held_out.agreement
        if newest is None:
            return
        if held_out.labelled != self._labelled:  # other samples, whose agreement cannot be compared
            self._agreements.clear()
            self._labelled = held_out.labelled
            if held_out.noise_rate is None:
                self._rate = None
        if held_out.noise_rate is not None:
            rate, deviation = held_out.noise_rate, held_out.noise_deviation
            before = self._rate or (rate, deviation)
            self._rate = fmean([before[0], rate]), fmean([before[1], deviation])
        agreement = fmean([*list(self._agreements)[-1:], newest])
        self._agreements.append(agreement)
        error = math.sqrt(agreement * (1 - agreement) / held_out.samples)
        trust = min(1.0, max(0.0, 2 - (max(self._agreements) - agreement) / max(error, _LEAST_ERROR)))
        share, spread = self._rate or (None, 0.0)
        self._found[index] = HeldOutEstimate(share, spread, trust)

    def before(self, index: int) -> HeldOutEstimate | None:
        """Return what is known for round `index`; None if nothing is.

        It follows from the evaluations until the last round but one, since that of the last round may overlap this one.
        """
        return next((found for at, found in reversed(self._found.items()) if at <= index - 2), None)


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


def add_noise_rate(counts: HeldOut, sums: HeldOutSums) -> HeldOut:
    """Return counts with the share of wrong labels, fitted to sums over the same samples if these suffice.

    It is rounded, so that sums in another order, as sites add them up, give the same bits.

    Args:
        counts: of the held-out samples.
        sums: the log-likelihoods of their labels.
    """
    if sums.samples < _MIN_SAMPLES:
        return counts
    _, rate, deviation = sums.fit()
    rounded = {"noise_rate": round(rate * _STEPS) / _STEPS, "noise_deviation": round(deviation * _STEPS) / _STEPS}
    return counts.model_copy(update=rounded)


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
