"""Li et al. 2020, "Federated Optimization in Heterogeneous Networks", arXiv 1812.06127."""

from dataclasses import dataclass
from typing import Annotated

import torch.nn.functional as F
from pydantic import Field

from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods import RoundContext, ServerState, Update
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import fedavg, model_weights, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class FedProx(LocalSgd):
    """FedAvg whose clients are pulled back to the weights that the server sent."""

    mu: Annotated[float, Field(ge=0)] = 0.01  # weight of the proximal term

    def init(self, net: Network) -> ServerState:
        """Return the initial weights."""
        return ServerState(model_weights(net))

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change."""
        return Update(zeros_like(server_state.model), 0.0)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Minimise cross-entropy + mu / 2 * |w - w_server|^2 by a few epochs of SGD."""
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))  # (B, K)
                distance = sum((w - server_state.model[name]).square().sum() for name, w in net.named_parameters())
                loss = F.cross_entropy(logits, data.labels[index]) + self.mu / 2 * distance
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics.sums()), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights, by their numbers of samples."""
        return ServerState(fedavg(server_state, total))
