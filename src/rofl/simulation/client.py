"""A client: its settings, the function that trains it for every engine, and its state between rounds."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rofl.core.rng import derive, seeded, single_thread
from rofl.core.serialization import deserialize, serialize
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset, Transform, atomic
from rofl.data.regular_file import read_regular
from rofl.errors import UserError
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.methods.weights import load_weights
from rofl.models import Network
from rofl.simulation.network_spec import NetworkSpec


@dataclass(frozen=True)
class ClientConfig:
    """The settings that all clients and rounds of a run share; sent to each worker once."""

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
    """Train one client for one round; the simulation and the sites of a federation both call this.

    Loads the server's weights and seeds dropout by round and client. Runs on one thread, since the bits of a result
    depend on the number of threads.

    Args:
        method: the federated method.
        net: a network of the right architecture; its weights are overwritten.
        server_state: the state that the server broadcast.
        client_state: the client's state after its last round.
        data: the client's samples, on the network's device.
        ctx: the round and the client.

    Returns:
        The update for the server, and the state to keep for the client's next round.
    """
    with single_thread(), seeded(derive(ctx.seed, ctx.index, ctx.client, "layers"), net.device):
        load_weights(net, server_state.model)
        return method.client_update(net, server_state, client_state, data, ctx)


class ClientStateStore:
    """Client states, in memory or in a folder with one file per client and round.

    A round writes new files beside the old ones, so the last checkpoint, which names the round of each client's state,
    stays valid until the next one is written; `prune` then removes the old files.
    """

    def __init__(self, folder: Path | None = None, rounds: Mapping[int, int] | None = None) -> None:
        self.folder = folder
        self.rounds = dict(rounds or {})  # client -> round of its state
        self._memory: dict[int, Tensors] = {}

    def load(self, client: int) -> Tensors:
        """Return the client's state; {} if it has none.

        Raises:
            UserError: its file is missing or damaged.
        """
        if client not in self.rounds:
            return {}
        if self.folder is None:
            return self._memory[client]
        try:
            return deserialize(read_regular(self._path(client), follow=False))[0]["state"]
        except (OSError, ValueError, KeyError) as error:
            problem = f"{self._path(client)} is gone or damaged ({type(error).__name__})."
            raise UserError(problem, "start the run again") from error

    def save(self, client: int, index: int, state: Tensors) -> None:
        """Store a client's state; an empty one is not stored.

        Args:
            client: the client's number.
            index: the round that returned the state.
            state: the tensors to keep.
        """
        if not state:
            self.rounds.pop(client, None)
            return
        self.rounds[client] = index
        if self.folder is None:
            self._memory[client] = state
        else:
            atomic.atomic_write(self._path(client), serialize({"state": state}, {}))

    def prune(self) -> None:
        """Remove files of earlier rounds; call it after a checkpoint."""
        if self.folder is not None and self.folder.is_dir():
            wanted = {self._path(client) for client in self.rounds}
            for path in set(self.folder.glob("*-*.safetensors*")) - wanted:  # only files that a store wrote
                path.unlink()

    def _path(self, client: int) -> Path:
        assert self.folder is not None
        return self.folder / f"{client}-{self.rounds[client]}.safetensors"
