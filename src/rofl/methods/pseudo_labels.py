"""Eq. 8: pseudo-labels, the model's predictions for samples whose given label is not trusted."""

import torch
from torch import Tensor

from rofl.data import ClientDataset
from rofl.methods.inference import CHUNK, forward
from rofl.models import Network

_MAX_LAZY_SHARE = 2 / 3  # of a client's samples are predicted on demand; then the rest is, in one pass


class PseudoLabels:
    """y-hat of a client's samples, by the network as it is now: evaluation mode, no augmentation.

    Eq. 1 needs y-hat of unconfident samples only, so predictions are made on demand: where labels are mostly right,
    this saves most of a pass over all samples, a twentieth of a client's round. Clients with at most 125 samples or on
    an accelerator use one pass instead, since selecting samples there would force a synchronisation.

    Args:
        net: the network; a copy is kept, so that it may go on training.
        data: the client's samples.
        soft: labels as probabilities (n, K) rather than classes (n,).
    """

    def __init__(self, net: Network, data: ClientDataset, soft: bool) -> None:
        self._predictor = net.predictor()  # a copy: the network goes on training
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
