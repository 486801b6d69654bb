"""The loss of a batch on the given labels, for FedAvg and its subclasses: four losses, label smoothing and mixup."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from rofl.core import losses
from rofl.core.rng import numpy_generator
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext
from rofl.models import Network

if TYPE_CHECKING:
    from rofl.methods.fedavg import FedAvg

_TARGETS = "targets"  # in the client state: (n, K) of early-learning regularization


class Mixup:
    """Zhang et al. 2018, "mixup": samples and their labels are mixed with those of the same batch.

    Args:
        alpha: lambda of a batch is drawn from Beta(alpha, alpha); 0 mixes nothing.
        ctx: the round and the client, for the draws.
    """

    def __init__(self, alpha: float, ctx: RoundContext) -> None:
        self._alpha, self._order = alpha, ctx.rng("mixup")
        self._shares = numpy_generator(ctx.seed, ctx.index, ctx.client, "mixup")

    def __call__(self, inputs: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return mixed inputs (B, ...), the partner (B,) of each sample, and the share of the sample itself."""
        partner = torch.arange(len(inputs), device=inputs.device)
        if not self._alpha:
            return inputs, partner, 1.0
        share = float(self._shares.beta(self._alpha, self._alpha))
        partner = torch.randperm(len(inputs), generator=self._order).to(inputs.device)
        return torch.lerp(inputs[partner], inputs, share), partner, share


class Objective:
    """The loss of FedAvg's settings on one client's batches; `ce` alone is bit-identical to `F.cross_entropy`.

    Args:
        settings: which loss, with its hyper-parameters.
        net: the network that is trained.
        data: the client's samples.
        client_state: of the client's last round, with the targets of early-learning regularization.
        ctx: the round and the client.
    """

    def __init__(
        self, settings: "FedAvg", net: Network, data: ClientDataset, client_state: Tensors, ctx: RoundContext
    ) -> None:
        self._settings, self._net, self._data = settings, net, data
        self._augment, self._mixup = ctx.rng("augment"), Mixup(settings.mixup, ctx)
        zeros = torch.zeros(len(data), data.classes, device=data.labels.device)
        self._targets = client_state.get(_TARGETS, zeros).clone() if settings.loss == "elr" else zeros

    def __call__(self, index: Tensor) -> Tensor:
        """Return the mean loss of some of the client's samples (B,)."""
        labels = self._data.labels[index]
        inputs, partner, share = self._mixup(self._data.inputs(index, self._augment))
        logits, _ = self._net(inputs)  # (B, K)
        loss = self._loss(logits, labels)
        if self._settings.mixup:  # mixing the labels equals mixing the losses
            loss = share * loss + (1 - share) * self._loss(logits, labels[partner])
        if self._settings.loss == "elr":
            loss = loss + self._settings.elr_lambda * self._regularizer(logits, index)
        return loss

    def next_state(self) -> Tensors:
        """Return the client state for its next round."""
        return {_TARGETS: self._targets} if self._settings.loss == "elr" else {}

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        settings = self._settings
        if settings.loss == "gce":
            return losses.generalized_cross_entropy(logits.log_softmax(dim=1), labels, settings.gce_q).mean()
        if settings.loss == "sce":
            log_probs = logits.log_softmax(dim=1)
            return losses.symmetric_cross_entropy(log_probs, labels, settings.sce_alpha, settings.sce_beta).mean()
        return F.cross_entropy(logits, labels, label_smoothing=settings.label_smoothing)

    def _regularizer(self, logits: Tensor, index: Tensor) -> Tensor:
        """Return the mean regularizer of a batch, and move its samples' targets towards their predictions."""
        probs = losses.clipped_probs(logits.log_softmax(dim=1))
        targets = losses.remember(self._targets[index], probs.detach(), self._settings.elr_momentum)
        self._targets[index] = targets
        return losses.early_learning(probs, targets).mean()
