"""Eq. 8: the labels that a model gives to samples whose own label is not believed."""

import torch
from torch import Tensor

from rofl.data import ClientDataset
from rofl.methods.inference import CHUNK, forward
from rofl.models import Network

_MOST = 2 / 3  # of a client's samples are looked at as they are asked for; then the rest is, all at once


class PseudoLabels:
    """y-hat of a client's samples, by the network as it is now: evaluation mode, images as they are.

    Eq. 1 needs y-hat of unconfident samples alone. Where labels are mostly right, looking at these alone spares most
    of a pass over all samples, which is a twentieth of a client's round. It is no gain where nearly all are asked for
    in the end, where all fit into one chunk, or where to see who asks means to wait for an accelerator.
    """

    def __init__(self, net: Network, data: ClientDataset, soft: bool) -> None:
        self._predictor = net.predictor()  # a copy: the network goes on training
        self._data, self._soft = data, soft
        shape = (len(data), data.classes) if soft else (len(data),)
        self._labels = data.labels.new_zeros(shape, dtype=torch.float32 if soft else torch.int64)
        self._missing = torch.ones_like(data.labels, dtype=torch.bool)
        self._left = len(data)  # how many are missing
        self._most = _MOST * len(data) if len(data) > CHUNK and net.device.type == "cpu" else 0

    def of(self, index: Tensor, wanted: Tensor) -> Tensor:
        """Probabilities (B, K) or classes (B,) of a batch; they mean something only where `wanted` (B,)."""
        if self._left:
            new = index[wanted & self._missing[index]]
            if len(self._data) - self._left + len(new) > self._most:
                new = self._missing.nonzero().view(-1)
            if len(new):
                data = self._data
                self.learn(new, forward(self._predictor, data.pixels, data.transform, data.rows[new])[0])
        return self._labels[index]

    def learn(self, index: Tensor, logits: Tensor) -> None:
        """Take predictions (m, K) of samples that have none yet."""
        self._labels[index] = logits.softmax(dim=1) if self._soft else logits.argmax(dim=1)
        self._missing[index] = False
        self._left -= len(index)
