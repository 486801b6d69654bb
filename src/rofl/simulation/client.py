"""The one function that runs a client, whatever the engine, and what it needs to do so."""

from dataclasses import dataclass

from rofl.core.rng import derive, seeded
from rofl.core.tensors import Tensors
from rofl.core.threads import single_thread
from rofl.data import ClientDataset, Transform
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.methods.weights import load_weights
from rofl.models import Network
from rofl.simulation.network_spec import NetworkSpec


@dataclass(frozen=True)
class ClientConfig:
    """What all clients and rounds of a run share; sent to each worker once."""

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
    """Train one client for one round, in the simulation and at a site alike.

    It loads the server's weights and seeds dropout by round and client. It computes on one thread, since the bits of a
    result depend on the number of threads.

    Args:
        method: the federated method.
        net: a network of the right architecture; what it held before does not matter.
        server_state: what the server broadcast.
        client_state: what this client kept from its last round.
        data: the client's samples, on the network's device.
        ctx: the round and the client.

    Returns:
        The update for the server, and the state to keep for the client's next round.
    """
    with single_thread(), seeded(derive(ctx.seed, ctx.index, ctx.client, "layers"), net.device):
        load_weights(net, server_state.model)
        return method.client_update(net, server_state, client_state, data, ctx)
