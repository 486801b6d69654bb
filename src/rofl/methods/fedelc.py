"""Jiang et al. 2024, "Tackling Noisy Clients in Federated Learning with End-to-end Label Correction" (FedELC).

FedNoRo's detection; noisy clients learn their labels together with the weights, as PENCIL does (Yi and Wu 2019).
"""

from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext
from rofl.methods.fednoro import FedNoRo
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import MetricSums
from rofl.models import Network

_LOGITS = "label_logits"  # key in the client state: (n, K)


@dataclass(frozen=True)
class FedElc(FedNoRo):
    """Finds noisy clients like FedNoRo; they also learn label distributions by gradient descent."""

    start: Annotated[int, Field(ge=1)] = 21
    label_scale: Annotated[float, Field(gt=0)] = 10.0  # K: initial logit of a given label
    label_lr: Annotated[float, Field(gt=0)] = 1000.0  # lambda: learning rate of the label logits
    alpha: Annotated[float, Field(ge=0)] = 0.5  # weight of the term that keeps the given labels
    beta: Annotated[float, Field(ge=0)] = 0.2  # weight of the entropy term

    def _train_noisy(
        self, net: Network, client_state: Tensors, data: ClientDataset, ctx: RoundContext, metrics: MetricSums
    ) -> Tensors:
        """Train weights and labels in turn; return the labels, merged with the trained model's predictions."""
        label_logits = self._kept_labels(client_state, data)[_LOGITS].clone()  # (n, K)
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        for _ in range(self.epochs):
            net.train()
            gradients = torch.zeros_like(label_logits)
            for index in data.batches(self.batch, order):
                batch_labels = label_logits[index].requires_grad_()
                logits, _ = net(data.inputs(index, augment))
                loss = self._loss(logits, batch_labels, data.labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                assert batch_labels.grad is not None
                gradients[index] = batch_labels.grad
                metrics.add(len(index), loss=loss)
            label_logits = label_logits - self.label_lr * gradients
        predicted = predict_client(net, data)[0].softmax(dim=1)
        return {_LOGITS: self.label_scale * (label_logits.softmax(dim=1) + predicted) / 2}

    def _kept_labels(self, client_state: Tensors, data: ClientDataset) -> Tensors:
        """Return the label logits (n, K) so far; at first those of the given labels."""
        given = self.label_scale * F.one_hot(data.labels, data.classes).float()
        return {_LOGITS: client_state.get(_LOGITS, given)}

    def _loss(self, logits: Tensor, label_logits: Tensor, given: Tensor) -> Tensor:
        """Return KL(prediction || label) / K + alpha * CE(label, given) + beta * entropy / K.

        Args:
            logits: (B, K) of the network.
            label_logits: (B, K) of the labels.
            given: (B,) classes.
        """
        log_probs, log_labels = logits.log_softmax(dim=1), label_logits.log_softmax(dim=1)
        l_e = losses.entropy(log_probs).mean()
        l_c = losses.cross_entropy(log_labels, log_probs.exp()).mean() - l_e
        l_o = losses.cross_entropy(log_labels, given).mean()
        return (l_c + self.beta * l_e) / logits.shape[1] + self.alpha * l_o
