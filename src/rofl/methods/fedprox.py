"""Li et al. 2020, "Federated Optimization in Heterogeneous Networks", arXiv 1812.06127."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rofl.methods.base import ServerState
from rofl.methods.fedavg import FedAvg
from rofl.methods.weights import trained_parameters
from rofl.models import Network


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg with a proximal term that keeps clients close to the server's weights."""

    mu: Annotated[float, Field(ge=0)] = 0.01  # weight of the proximal term; the paper tries 0.001, 0.01, 0.1 and 1

    def penalty(self, net: Network, server_state: ServerState) -> Tensor | float:
        """Return mu / 2 * |w - w_server|^2 over all weights, without running statistics."""
        distances = [
            (weight - server_state.model[name]).square().sum() for name, weight in trained_parameters(net).items()
        ]
        return self.mu / 2 * torch.stack(distances).sum()
