"""Tanaka et al. 2018, "Joint Optimization Framework for Learning with Noisy Labels" (its first step), with FedAvg."""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
import torch.nn.functional as F
from pydantic import Field

from rofl.core import losses
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import fedavg, weight_update
from rofl.models import Network

# Tanaka's learning rates for symmetric noise; those for the ratios between are interpolated.
_RATES = {0.0: 0.01, 0.1: 0.02, 0.3: 0.03, 0.5: 0.04, 0.7: 0.08, 0.9: 0.12}
_PAIR_RATE = 0.03  # for asymmetric noise at any ratio


@dataclass(frozen=True)
class Joint(LocalSgd):
    """Learns weights and labels alternately: from round `start` on, labels are the network's averaged predictions."""

    lr: Annotated[float, Field(ge=0)] = 0.0  # 0: Tanaka's for the known noise ratio; 8e-4 for Clothing1M
    alpha: Annotated[float, Field(ge=0)] = 1.2  # weight of the prior term; 2.4 for Clothing1M
    beta: Annotated[float, Field(ge=0)] = 0.8  # weight of the entropy term
    start: Annotated[int, Field(ge=1)] = 100  # first round that changes labels
    memory: Annotated[int, Field(ge=1)] = 10  # epochs whose predictions are averaged

    def with_noise_rate(self, kind: str, ratio: float) -> "Joint":
        """Return the method with Tanaka's learning rate for this noise, if `lr` is 0."""
        return self if self.lr else replace(self, lr=published_rate(kind, ratio))

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Run Algorithm 1 of Joint Optimization on one client's data.

        The client keeps its current soft labels (n, K) and the predictions of its last `memory` epochs.
        """
        if not self.lr:
            raise ValueError("lr = 0 must be replaced by a learning rate before training")
        labels = client_state.get("labels", F.one_hot(data.labels, data.classes).float())  # (n, K) current
        past = client_state.get("past", labels.new_empty(0, len(data), data.classes))  # (epochs, n, K), the newest last
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            predictions = torch.empty_like(labels)  # (n, K) s of this epoch
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))
                log_probs = logits.log_softmax(dim=1)
                l_c = losses.divergence(labels[index], log_probs).mean()  # Eq. 5
                l_p = losses.prior(log_probs)  # Eq. 7
                l_e = losses.entropy(log_probs).mean()  # Eq. 8
                loss = l_c + self.alpha * l_p + self.beta * l_e  # Eq. 4
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                predictions[index] = log_probs.detach().exp()
                metrics.add(len(index), loss_c=l_c, loss_p=l_p, loss_e=l_e, loss=loss)
            past = torch.cat([past, predictions.unsqueeze(0)])[-self.memory :]
            if ctx.index >= self.start:
                labels = past.mean(dim=0)  # the soft-label form of Eq. 10
        next_state = {"labels": labels, "past": past}
        return Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics.sums()), next_state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights (Eq. 10 of the federated paper)."""
        return ServerState(fedavg(server_state, total))


def published_rate(kind: str, ratio: float) -> float:
    """Return Tanaka's learning rate for a kind and ratio of noise, interpolated between the published ratios.

    >>> published_rate("symmetric", 0.7), round(published_rate("symmetric", 0.4), 4), published_rate("pair", 0.4)
    (0.08, 0.035, 0.03)
    """
    if kind == "pair" and ratio > 0:
        return _PAIR_RATE
    points = sorted(_RATES)
    above = next((point for point in points if point >= ratio), points[-1])
    below = max((point for point in points if point <= ratio), default=points[0])
    share = (ratio - below) / (above - below) if above > below else 0.0
    return _RATES[below] + share * (_RATES[above] - _RATES[below])
