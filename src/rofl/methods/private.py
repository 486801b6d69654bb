"""Any method with differential privacy for its clients, after McMahan et al. 2018, arXiv 1710.06963."""

import math
from dataclasses import dataclass

import torch

from rofl.core.privacy import privatised
from rofl.core.tensors import Tensors, scaled_difference, zeros_like
from rofl.data import Shard
from rofl.methods.base import Global, Method, Round, Update
from rofl.models import Network

_STATISTICS = ("running_mean", "running_var")  # batch norm's: at first they move far, while the weights hardly do
_LEAST = 0.1  # of a variance remains after a round: noise must not make it negative


@dataclass(frozen=True)
class Private:
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

    def begin(self, net: Network) -> Global:
        """As the method begins."""
        return self.method.begin(net)

    def blank(self, glob: Global) -> Update:
        """No change of the global state."""
        return Update(zeros_like(glob.model), 0.0, zeros_like(glob.extra))

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        """The method's update as a vote. Metrics are left out: counts and losses would tell what is to be hidden."""
        update, state = self.method.client(net, glob, state, data, rnd)
        usable = 0 < update.weight < math.inf
        alone = self.method.server(glob, update, Round(rnd.index, rnd.seed)) if usable else glob
        change = scaled_difference(_joined(alone), _joined(glob), 1.0)
        kinds = sorted({_kind(name) for name in change})
        parts = [{name: value for name, value in change.items() if _kind(name) == kind} for kind in kinds]
        rng = None if self.secret else rnd.rng("privacy")
        votes = dict(
            item for part in privatised(parts, self.clip, self.noise, self.cohort, rng) for item in part.items()
        )
        model, extra = ({name: votes[f"{group}/{name}"] for name in named} for group, named in _groups(glob))
        return Update(model, 1.0, extra), state

    def server(self, glob: Global, total: Update, rnd: Round) -> Global:
        """The global state, moved by the mean vote."""
        return Global(_moved(glob.model, total.model, total.weight), _moved(glob.extra, total.extra, total.weight))


def _groups(glob: Global) -> list[tuple[str, Tensors]]:
    return [("model", glob.model), ("extra", glob.extra)]


def _joined(glob: Global) -> Tensors:
    return {f"{group}/{name}": value for group, named in _groups(glob) for name, value in named.items()}


def _kind(name: str) -> str:
    """The part of a vote that a tensor belongs to; parts have different units, and are clipped each for itself."""
    return "statistics" if name.endswith(_STATISTICS) else name.partition("/")[0]


def _moved(old: Tensors, votes: Tensors, count: float) -> Tensors:
    """Tensors after the mean vote."""
    moved = {name: value + votes[name] / count for name, value in old.items()}
    variances = (name for name in old if name.endswith("running_var"))
    return moved | {name: torch.maximum(moved[name], _LEAST * old[name]) for name in variances}
