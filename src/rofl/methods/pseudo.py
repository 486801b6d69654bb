"""Eq. 8: the labels that a model gives to samples whose own label is not believed."""

import torch
from torch import Tensor

from rofl.data import Shard
from rofl.methods.training import forward
from rofl.models import Network


class PseudoLabels:
    """y-hat of a client's samples, by the network as it is now: evaluation mode, images as they are.

    A sample is looked at when it is first asked for, and never again. Eq. 1 needs y-hat of unconfident samples alone,
    which spares the pass over all of a client's samples: a twentieth of its round.
    """

    def __init__(self, net: Network, data: Shard, soft: bool) -> None:
        self._predictor = net.predictor()  # a copy: the network goes on training
        self._data, self._soft = data, soft
        shape = (len(data), data.classes) if soft else (len(data),)
        self._labels = data.labels.new_zeros(shape, dtype=torch.float32 if soft else torch.int64)
        self._known = torch.zeros_like(data.labels, dtype=torch.bool)

    def learn(self, index: Tensor | slice, logits: Tensor) -> None:
        """Take predictions (m, K) of some samples."""
        self._labels[index] = logits.softmax(dim=1) if self._soft else logits.argmax(dim=1)
        self._known[index] = True

    def of(self, index: Tensor, wanted: Tensor) -> Tensor:
        """Probabilities (B, K) or classes (B,) of a batch; they mean something only where `wanted` (B,)."""
        new = index[wanted & ~self._known[index]]
        if len(new):
            data = self._data
            self.learn(new, forward(self._predictor, data.pixels, data.transform, data.rows[new])[0])
        return self._labels[index]
