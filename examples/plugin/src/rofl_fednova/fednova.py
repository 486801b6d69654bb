"""Wang et al. 2020, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization"."""

from dataclasses import dataclass, replace

import torch

from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods import FedAvg, RoundContext, ServerState, Update
from rofl.models import Network


@dataclass(frozen=True)
class FedNova(FedAvg):
    """FedAvg in which a client's change counts per local step, so that clients that take more steps do not dominate.

    A client sends n_k * (w_k - w) / a_k, where a_k is the effective number of its steps, and n_k * a_k. Both are sums,
    from which the server makes w + (sum of n_k a_k / n) * (sum of n_k (w_k - w) / a_k / n).
    """

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change, and no steps."""
        return replace(super().zero_update(server_state), aux={"steps": torch.zeros(1)})

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train as FedAvg does, and divide the change by the effective number of steps."""
        update, client_state = super().client_update(net, server_state, client_state, data, ctx)
        steps = self.epochs * len(list(data.batches(self.batch, ctx.rng("batches"))))
        effective = effective_steps(steps, self.momentum)
        model = {name: value / effective for name, value in update.model.items()}
        return replace(update, model=model, aux={"steps": torch.tensor([update.weight * effective])}), client_state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the weights after the mean change per step, times the mean number of steps."""
        steps = total.aux["steps"] / total.weight
        model = {name: value * steps for name, value in total.model.items()}
        return super().server_update(server_state, replace(total, model=model), ctx)


def effective_steps(steps: int, momentum: float) -> float:
    """Return a_k of SGD with momentum: the sum of the weights with which single gradients enter the change.

    >>> effective_steps(3, 0.0), effective_steps(2, 0.5)
    (3.0, 2.5)
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
