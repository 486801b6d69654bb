"""Jiang et al. 2022, "Towards Federated Learning against Noisy Labels via Local Self-Regularization" (FedLSR)."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.rng import numpy_generator
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.views import strong_view
from rofl.methods.weights import fedavg, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class FedLsr(LocalSgd):
    """Trains on the sharpened mixture of predictions for two views, and keeps the two consistent."""

    gamma: Annotated[float, Field(ge=0)] = 0.4  # weight of the divergence of the two views, once it has risen
    gamma_ramp: Annotated[float, Field(ge=0, le=1)] = 0.2  # share of the rounds over which gamma rises
    lambda_e: Annotated[float, Field(ge=0)] = 0.3  # weight of the entropy term; 0.6 for Fashion-MNIST
    sharpen: Annotated[float, Field(gt=0)] = 3.0  # factor of the logits in the divergence, 1 / T_d

    def cautious(self) -> Self:
        """Return the method without self-regularization: no comparison of two views, and no entropy term."""
        return replace(self, gamma=0.0, lambda_e=0.0)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train on two views of each batch, in one forward pass."""
        gamma = self.gamma * losses.linear_ramp(ctx.index, 0, self.gamma_ramp * self.horizon)
        optimizer = self.optimizer(net, ctx)
        order, augment, views = ctx.rng("batches"), ctx.rng("augment"), ctx.rng("views")
        shares = numpy_generator(ctx.seed, ctx.index, ctx.client, "views")
        net.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                inputs = data.inputs(index, augment)
                logits, _ = net(torch.cat([inputs, strong_view(inputs, views)]))  # (2B, K)
                first, second = logits.chunk(2)
                share = float(shares.uniform())  # Beta(1, 1)
                mixed = mixed_log_probs(first, second, share)
                l_c = losses.cross_entropy(mixed, data.labels[index]).mean()
                l_js = jensen_shannon(self.sharpen * first, self.sharpen * second).mean()
                l_e = losses.entropy(logits.log_softmax(dim=1)).mean()
                loss = l_c + gamma * l_js + self.lambda_e * l_e
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss_c=l_c, loss_js=l_js, loss_e=l_e, loss=loss)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics.sums()), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights by their numbers of samples."""
        return ServerState(fedavg(server_state, total))


def mixed_log_probs(first: Tensor, second: Tensor, share: float) -> Tensor:
    """Return log-probabilities (B, K) of a mixture of two predictions, squared and normalised to be sharper.

    Args:
        first: (B, K) logits.
        second: (B, K) logits.
        share: of the first.
    """
    probs = share * first.softmax(dim=1) + (1 - share) * second.softmax(dim=1)
    return (2 * probs.clamp(min=torch.finfo(probs.dtype).tiny).log()).log_softmax(dim=1)


def jensen_shannon(first: Tensor, second: Tensor) -> Tensor:
    """Return the Jensen-Shannon divergence (B,) of two predictions, from logits (B, K).

    >>> jensen_shannon(torch.tensor([[50.0, 0.0]]), torch.tensor([[0.0, 50.0]]))
    tensor([0.6931])
    """
    log_p, log_q = first.log_softmax(dim=1), second.log_softmax(dim=1)
    mean = torch.logaddexp(log_p, log_q) - math.log(2)
    return (losses.divergence(log_p.exp(), mean) + losses.divergence(log_q.exp(), mean)) / 2
