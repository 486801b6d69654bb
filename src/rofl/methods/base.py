"""The whole interface between a method and an engine.

An engine (the simulation, or a federation over a network) calls a method through `Method` and nothing else. To write
a method, inherit from `Method` and implement `init`, `zero_update`, `client_update` and `server_update`;
the other functions have defaults. Processing of updates in transit, such as noise for privacy or rounding, is not part
of a method: see `rofl.methods.postprocessors`.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

import torch

from rofl.core.held_out_fit import HeldOutEstimate
from rofl.core.rng import generator
from rofl.core.tensors import Tensors, add
from rofl.data import ClientDataset
from rofl.models import Network

AVERAGE = "average/"  # prefix in `ServerState.kept` of the weights averaged over rounds
BOUNDS = "bounds/"  # prefix in `aux` of entries for bounds on updates; not part of the model
NORMS = f"{BOUNDS}norms"  # key in an update's `aux`: (P, BINS) counts of the norm of each part


@dataclass(frozen=True)
class RoundContext:
    """The round, the seed and the client; every random draw and every schedule is a function of it."""

    index: int  # counts from 1, the paper's t
    seed: int
    client: int = -1  # -1 at the server

    def rng(self, purpose: str) -> torch.Generator:
        """Return a new generator for one purpose of this client in this round; equal purposes give equal draws."""
        return generator(self.seed, self.index, self.client, purpose)


@dataclass(frozen=True)
class ServerState:
    """The tensors that the server keeps and broadcasts. Names, shapes and types never change during a run."""

    model: Tensors  # weights and running statistics, by the names of `Network.state_dict`
    aux: Tensors = field(default_factory=dict)  # rofl: centroids (K, d)
    kept: Tensors = field(default_factory=dict)  # never sent to a client: `momentum/<name>`, `noise/<name>`

    def evaluated(self) -> "ServerState":
        """Return the state for evaluation, audit and saving: averaged over rounds, if the server averages."""
        average = {name.removeprefix(AVERAGE): value for name, value in self.kept.items() if name.startswith(AVERAGE)}
        aux = without_bounds(self.aux)
        return ServerState(average or self.model, aux) if average or len(aux) < len(self.aux) else self


@dataclass(frozen=True)
class Update:
    """The update of one client. All fields are summands: the server uses only their sums over clients."""

    model: Tensors  # n_k * (w_k - w)
    weight: float  # n_k
    aux: Tensors = field(default_factory=dict)  # rofl: s_k * f_k (K, d) and s_k (K, 1)
    metrics: Mapping[str, float] = field(default_factory=dict)  # sums, such as the number of confident samples

    def __add__(self, other: "Update") -> "Update":
        names = dict.fromkeys([*self.metrics, *other.metrics])
        return Update(
            model=add(self.model, other.model),
            weight=self.weight + other.weight,
            aux=add(self.aux, other.aux),
            metrics={name: self.metrics.get(name, 0.0) + other.metrics.get(name, 0.0) for name in names},
        )


@dataclass(frozen=True)
class Claims:
    """The number of clients and samples behind an update or a sum, as declared to the server before the round.

    Attributes:
        samples: the number of samples that they declared in total.
        clients: the number of clients.
        norms: counts of the norms of all updates of the round (`rofl.core.norm_counts`); None if unknown.
        largest: the largest share of these samples that one client has.
    """

    samples: float
    clients: int
    norms: torch.Tensor | None = None
    largest: float = 1.0


def without_bounds(aux: Mapping[str, torch.Tensor]) -> Tensors:
    """Return `aux` without the entries of bounds on updates."""
    return {name: value for name, value in aux.items() if not name.startswith(BOUNDS)}


class Method(Protocol):
    """A federated method, a frozen dataclass whose fields are its hyper-parameters; no method changes `self`.

    Inherit from this class to get the defaults of the methods that are not abstract.
    """

    @abstractmethod
    def init(self, net: Network) -> ServerState:
        """Return the initial server state, given the network with its initial weights."""

    @abstractmethod
    def zero_update(self, server_state: ServerState) -> Update:
        """Return the update that changes nothing: the start of a sum, and the names and shapes of every update."""

    @abstractmethod
    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train on one client's data.

        Args:
            net: the network with the weights of `server_state`; it may be changed.
            server_state: the state that the server broadcast; read only.
            client_state: the state that this method returned for this client in its last round; empty at first.
            data: the client's samples.
            ctx: the round and the client, for schedules and random draws.

        Returns:
            The update for the server, and the state that stays with the client until its next round.
        """

    @abstractmethod
    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the next server state.

        Args:
            server_state: the state that was broadcast.
            total: the sum of the cohort's updates; its weight is above 0.
            ctx: the round, with client -1.
        """

    def with_noise_rate(self, kind: str, ratio: float) -> Self:
        """Return the method for labels with this kind and ratio of noise; by default, itself."""
        return self

    def with_rounds(self, rounds: int) -> Self:
        """Return the method for a run of this many rounds, for schedules that depend on them; by default, itself."""
        return self

    def with_clients(self, clients: int) -> Self:
        """Return the method for this number of clients, for tables with a row per client; by default itself."""
        return self

    def centralized(self) -> Self:
        """Return the method for the centralized setting, where a round is one epoch over all data; default: itself."""
        return self

    def cautious(self) -> Self:
        """Return the method without all steps that train on the model's own predictions; by default, itself.

        The guard may switch to it between two rounds: states and updates keep their names and shapes.
        """
        return self

    def held_out_pattern(self, server_state: ServerState) -> torch.Tensor | None:
        """Return where wrong labels go, (K, K): the share of class i's wrong labels that are labelled j.

        The engine fits the rate of wrong labels to held-out samples with this pattern after each round, and passes it
        to `with_held_out`. Rows sum to 1, the diagonal is 0, and all other entries are above 0. By default None:
        the method does not use held-out labels.
        """
        return None

    def with_held_out(self, server_state: ServerState, estimate: HeldOutEstimate) -> ServerState:
        """Return the state with what held-out labels show; by default, the state itself.

        The training loop calls it before every round, with the evaluations until the last round but one.

        Args:
            server_state: the state before the round.
            estimate: the share of wrong labels, fitted with `held_out_pattern`, and whether the agreement has fallen.
        """
        return server_state

    def wire_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype in which tensors of a dtype are sent between server and client; by default, the same."""
        return dtype

    @property
    def looks_at_updates(self) -> bool:
        """Whether the server inspects the single updates of a round before it adds them; by default it only adds."""
        return False

    @property
    def tells_clients_apart(self) -> bool:
        """Whether a sum of updates reveals each client's part, so that masking hides nothing; False by default."""
        return False

    def check_sums(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Return the reason why honest clients cannot have sent this, or None; by default, nothing is checked.

        It is called for single updates and for sums of updates, if bounds on updates are enabled.

        Args:
            total: the update, or a sum of updates.
            server_state: the state that was broadcast.
            claims: the declared clients and samples.
        """
        return None

    def combine(self, updates: Sequence[Update], server_state: ServerState) -> Update:
        """Combine the updates of a round; by default their sum, in order.

        Args:
            updates: of the clients that replied.
            server_state: the state that was broadcast.
        """
        total = self.zero_update(server_state)
        for update in updates:
            total = total + update
        return total


def wire_bytes(method: Method, tensors: Tensors) -> int:
    """Return the number of bytes that these tensors take on the wire."""
    return sum(value.numel() * method.wire_dtype(value.dtype).itemsize for value in tensors.values())
