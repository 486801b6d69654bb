"""Any method with differential privacy for its clients, after McMahan et al. 2018, arXiv 1710.06963."""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch

from rofl.core.dp import privatize
from rofl.core.tensors import Tensors, scaled_difference, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.models import Network

_STATISTICS = ("running_mean", "running_var")  # batch norm's: at first they move far, while the weights hardly do
_LEAST = 0.1  # of a variance remains after a round: noise must not make it negative


@dataclass(frozen=True)
class GaussianDP:
    """Clients send how they would change the global state, clipped and with noise, and nothing else.

    A client takes the server's step on its own update alone; the change this makes is its vote, on weights and
    centroids alike. All votes count alike, and the server takes their mean. A bounded vote has a bounded influence on
    a mean. On a quotient of two sums (Eq. 10 and 11) it has not, and noise could bring the denominator near zero.
    """

    method: Method
    clip: float  # C: how long a vote on the weights, on running statistics, or on what travels beside may be
    noise: float  # sigma: of the sum over a cohort, in units of C
    cohort: int  # clients that share the noise
    secret: bool = False  # noise that nobody can draw again; off only in simulations

    def with_noise_rate(self, kind: str, ratio: float) -> Self:
        """The same around the method for this noise."""
        return replace(self, method=self.method.with_noise_rate(kind, ratio))

    def centralized(self) -> Self:
        """The same around the method's centralized form."""
        return replace(self, method=self.method.centralized())

    def init(self, net: Network) -> ServerState:
        """As the method begins."""
        return self.method.init(net)

    def zero_update(self, server_state: ServerState) -> Update:
        """No change of the global state."""
        return Update(zeros_like(server_state.model), 0.0, zeros_like(server_state.aux))

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """The method's update as a vote. Metrics are left out: counts and losses would tell what is to be hidden."""
        update, state = self.method.client_update(net, server_state, client_state, data, ctx)
        usable = 0 < update.weight < math.inf
        alone = (
            self.method.server_update(server_state, update, RoundContext(ctx.index, ctx.seed))
            if usable
            else server_state
        )
        change = scaled_difference(_joined(alone), _joined(server_state), 1.0)
        kinds = sorted({_kind(name) for name in change})
        parts = [{name: value for name, value in change.items() if _kind(name) == kind} for kind in kinds]
        rng = None if self.secret else ctx.rng("privacy")
        votes = dict(
            item for part in privatize(parts, self.clip, self.noise, self.cohort, rng) for item in part.items()
        )
        model, aux = ({name: votes[f"{group}/{name}"] for name in named} for group, named in _groups(server_state))
        return Update(model, 1.0, aux), state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """The global state, moved by the mean vote."""
        return ServerState(
            _moved(server_state.model, total.model, total.weight), _moved(server_state.aux, total.aux, total.weight)
        )


def _groups(server_state: ServerState) -> list[tuple[str, Tensors]]:
    return [("model", server_state.model), ("aux", server_state.aux)]


def _joined(server_state: ServerState) -> Tensors:
    return {f"{group}/{name}": value for group, named in _groups(server_state) for name, value in named.items()}


def _kind(name: str) -> str:
    """The part of a vote that a tensor belongs to; parts have different units, and are clipped each for itself."""
    return "statistics" if name.endswith(_STATISTICS) else name.partition("/")[0]


def _moved(old: Tensors, votes: Tensors, count: float) -> Tensors:
    """Tensors after the mean vote."""
    moved = {name: value + votes[name] / count for name, value in old.items()}
    variances = (name for name in old if name.endswith("running_var"))
    return moved | {name: torch.maximum(moved[name], _LEAST * old[name]) for name in variances}
