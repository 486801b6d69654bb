"""Eq. 8: pseudo-labels, i.e. predictions for samples whose given label is not trusted, and their first round.

With T_pl = "auto" they start when the global model is right more often than the labels that they replace
(`EarnedStart`): docs/method.md has the rule, docs/decisions/0016-cifar10-on-two-cores.md the measurements.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.inference import CHUNK, forward
from rofl.models import Network

_MAX_LAZY_SHARE = 2 / 3  # share of a client's samples that is predicted on demand; then all others in one pass
AGREED = "agreed"  # key in an update's `aux`: samples whose label was predicted before it was learnt, and all
STATE = "start"  # key in the server's `aux`
_ODDS = 2.0  # if model and label differ, the model must be right this many times as often
_FAST, _SLOW = 0.5, 0.8  # momenta of two averages of the agreement over rounds
_LEAST_AGREEMENT = 0.5  # below it, a model whose agreement does not rise is weak, or most labels are wrong
_STILL = 0.01  # the agreement has stopped rising if the fast average is at most this far above the slow one


class PseudoLabels:
    """y-hat of a client's samples, predicted by the current network: evaluation mode, no augmentation.

    Eq. 1 needs y-hat of unconfident samples only, so predictions are made on demand: if labels are mostly right,
    this saves most of a pass over all samples, a twentieth of a client's round. Clients with at most 125 samples or on
    an accelerator use one pass instead, since selecting samples there would force a synchronisation.

    Args:
        net: the network; it is copied, so it may continue training.
        data: the client's samples.
        soft: labels as probabilities (n, K) rather than classes (n,).
    """

    def __init__(self, net: Network, data: ClientDataset, soft: bool) -> None:
        self._predictor = net.predictor()  # a copy: the network continues training
        self._data, self._soft = data, soft
        shape = (len(data), data.classes) if soft else (len(data),)
        self._labels = data.labels.new_zeros(shape, dtype=torch.float32 if soft else torch.int64)
        self._missing = torch.ones_like(data.labels, dtype=torch.bool)
        self._missing_count = len(data)  # how many are missing
        self._max_lazy = _MAX_LAZY_SHARE * len(data) if len(data) > CHUNK and net.device.type == "cpu" else 0

    def of(self, index: Tensor, wanted: Tensor) -> Tensor:
        """Return probabilities (B, K) or classes (B,) of a batch; only entries where `wanted` (B,) are meaningful."""
        if self._missing_count:
            new = index[wanted & self._missing[index]]
            if len(self._data) - self._missing_count + len(new) > self._max_lazy:
                new = self._missing.nonzero().view(-1)
            if len(new):
                data = self._data
                self.learn(new, forward(self._predictor, data.pixels, data.transform, data.rows[new])[0])
        return self._labels[index]

    def learn(self, index: Tensor, logits: Tensor) -> None:
        """Store predictions (m, K) of samples that have none yet."""
        self._labels[index] = logits.softmax(dim=1) if self._soft else logits.argmax(dim=1)
        self._missing[index] = False
        self._missing_count -= len(index)


def estimated_accuracy(agreement: float, wrong: float, classes: int) -> float:
    """Estimate a model's accuracy, 0 to 1, from its agreement with labels of which a known share is wrong.

    Model and label agree if both are right, or if both have the same wrong class; errors are assumed to be uniform over
    classes.

    Args:
        agreement: the share of labels that it predicts, on samples that it has not just trained on.
        wrong: the share of labels that are wrong.
        classes: K.

    >>> [round(estimated_accuracy(agreement, wrong=0.4, classes=5), 2) for agreement in (0.1, 0.35, 0.6, 0.7)]
    [0.0, 0.5, 1.0, 1.0]
    """
    chance = wrong / (classes - 1)
    return min(1.0, max(0.0, (agreement - chance) / max(1 - wrong - chance, 1e-3)))


def deserves_labels(accuracy: float, wrong: float) -> bool:
    """Return whether the model is accurate enough to replace the labels that it disagrees with.

    Assume that mistakes of the model and of the labels are independent. Then the two differ on accuracy * wrong of all
    samples with the model right, and on (1 - accuracy) * (1 - wrong) with the label right. The model must be right
    twice as often.

    Args:
        accuracy: the estimated accuracy of the model.
        wrong: the share of wrong labels; if it is 0, the result is False.

    >>> [deserves_labels(accuracy, wrong=0.4) for accuracy in (0.5, 0.7, 0.8)], deserves_labels(1.0, wrong=0.0)
    ([False, False, True], False)
    """
    return accuracy * wrong > _ODDS * (1 - accuracy) * (1 - wrong)


@dataclass(frozen=True)
class EarnedStart:
    """The agreement between the global model and given labels over rounds, as the server broadcasts it in `aux`."""

    numbers: Tensor  # (3,) fast and slow average of the agreement, and T_pl; 0 before the first round, and until earned

    @staticmethod
    def initial() -> "EarnedStart":
        """Return the state before the first round."""
        return EarnedStart(torch.zeros(3))

    @staticmethod
    def read(aux: Tensors) -> "EarnedStart":
        """Return the state stored in the `aux` of a server state."""
        return EarnedStart(aux[STATE])

    @property
    def t_pl(self) -> int | None:
        """The first round that uses pseudo-labels; None until it is known."""
        return int(self.numbers[2]) or None

    def updated(self, counts: Tensor, index: int, wrong: float | None, classes: int) -> "EarnedStart":
        """Return the state after a round; once T_pl is known, it stays.

        Args:
            counts: (2,) samples whose label was predicted, and all, over the clients of the round.
            index: the round.
            wrong: the share of labels that are wrong; None if unknown.
            classes: K.
        """
        agreed, counted = counts.nan_to_num().clamp(min=0).tolist()  # noise for privacy may give any value
        if counted < 1:
            return self
        now = min(1.0, agreed / counted)
        fast, slow, start = self.numbers.tolist()
        if fast > 0 or slow > 0:
            fast, slow = _FAST * fast + (1 - _FAST) * now, _SLOW * slow + (1 - _SLOW) * now
        else:
            fast = slow = now
        if wrong is None:
            earned = index > 1 and fast - slow <= _STILL and fast >= _LEAST_AGREEMENT
        else:
            earned = deserves_labels(estimated_accuracy(fast, wrong, classes), wrong)
        if earned and not start:
            start = float(index + 1)
        return EarnedStart(torch.tensor([fast, slow, start]).to(self.numbers))
