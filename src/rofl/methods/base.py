"""The whole interface between a method and an engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import torch

from rofl.core.rng import generator
from rofl.core.tensors import Tensors, add
from rofl.data import ClientDataset
from rofl.models import Network


@dataclass(frozen=True)
class RoundContext:
    """When and where we are; every random draw and every schedule is a function of it."""

    index: int  # counts from 1, the paper's t
    seed: int
    client: int = -1  # -1 at the server

    def rng(self, purpose: str) -> torch.Generator:
        """A generator for one purpose of this client in this round."""
        return generator(self.seed, self.index, self.client, purpose)


@dataclass(frozen=True)
class ServerState:
    """What the server keeps and broadcasts. Names and shapes never change during a run."""

    model: Tensors
    aux: Tensors = field(default_factory=dict)  # rofl: centroids (K, d)


@dataclass(frozen=True)
class Update:
    """What one client sends. Every field means something only after adding over clients."""

    model: Tensors  # n_k * (w_k - w)
    weight: float  # n_k
    aux: Tensors = field(default_factory=dict)  # rofl: s_k * f_k (K, d) and s_k (K, 1)
    metrics: Mapping[str, float] = field(default_factory=dict)  # sums, such as how many samples were confident

    def __add__(self, other: "Update") -> "Update":
        names = dict.fromkeys([*self.metrics, *other.metrics])
        return Update(
            model=add(self.model, other.model),
            weight=self.weight + other.weight,
            aux=add(self.aux, other.aux),
            metrics={name: self.metrics.get(name, 0.0) + other.metrics.get(name, 0.0) for name in names},
        )


class Method(Protocol):
    """A federated method. Hyper-parameters are the fields of a frozen dataclass; nothing ever changes self."""

    def with_noise_rate(self, kind: str, ratio: float) -> Self:
        """Return the method for labels with this kind and ratio of noise; most return themselves."""

    def centralized(self) -> Self:
        """Return the method for the centralized setting, where a round is one epoch over all data."""

    def init(self, net: Network) -> ServerState:
        """What the server starts from."""

    def zero_update(self, server_state: ServerState) -> Update:
        """The update that changes nothing: where a sum starts, and the shape every client's update must have."""

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train on one client. `net` holds the global weights already; the returned state stays with the client."""

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Make the next global state from the sum of the cohort's updates, whose weight is above 0."""
