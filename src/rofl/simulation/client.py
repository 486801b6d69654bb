"""The one place where a client runs, whatever the engine."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from rofl.core.rng import derive, seeded
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset, Transform
from rofl.data.pretrained_weights import weights_file
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.methods.weights import load_weights
from rofl.models import Network, build
from rofl.models.pretrained import load_imagenet


@dataclass(frozen=True)
class NetworkSpec:
    """How to build the network."""

    name: str
    shape: tuple[int, int, int]  # channels, height, width
    classes: int
    width: float
    seed: int
    weights: str = ""  # a file of published weights, or "imagenet"; else as drawn from the seed

    def build(self) -> Network:
        """The network with its initial weights."""
        net = build(self.name, self.shape, self.classes, self.width, self.seed)
        if self.weights:
            load_imagenet(net, weights_file(self.weights))
        return net


@dataclass(frozen=True)
class ClientConfig:
    """What is the same for all clients and rounds of a run."""

    method: Method
    network: NetworkSpec
    transform: Transform
    seed: int


def run_client(
    method: Method,
    net: Network,
    server_state: ServerState,
    client_state: Tensors,
    data: ClientDataset,
    ctx: RoundContext,
) -> tuple[Update, Tensors]:
    """Load the global weights, seed the layers, train; one thread, since bits depend on the number of threads."""
    with single_thread(), seeded(derive(ctx.seed, ctx.index, ctx.client, "layers"), net.device):
        load_weights(net, server_state.model)
        return method.client_update(net, server_state, client_state, data, ctx)


@contextmanager
def single_thread() -> Iterator[None]:
    """Compute on one thread, then as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
