"""FedAvg with cross-entropy (McMahan et al. 2017): the paper's "Cross Entropy Loss"."""

from dataclasses import dataclass

import torch.nn.functional as F

from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import fedavg, model_weights, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class FedAvg(LocalSgd):
    """FedAvg on the given labels, as if all of them were right; the baseline of every comparison."""

    def init(self, net: Network) -> ServerState:
        """Return the initial weights."""
        return ServerState(model_weights(net))

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change of the weights."""
        return Update(zeros_like(server_state.model), 0.0)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train by `epochs` passes of SGD with cross-entropy on the given labels."""
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))  # (B, K)
                loss = F.cross_entropy(logits, data.labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics.sums()), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights by their numbers of samples (Eq. 10)."""
        return ServerState(fedavg(server_state, total))
