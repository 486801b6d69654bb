"""Differential privacy for clients, after McMahan et al. 2018, arXiv 1710.06963."""

import math
from dataclasses import dataclass, field, replace

import torch

from rofl.core.dp import privatize, secret_bytes
from rofl.core.tensors import Tensors, digest, scaled_difference, zeros_like
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep
from rofl.methods.weights import is_statistic

_MIN_VARIANCE_SHARE = 0.1  # of a running variance that a round leaves: noise must not make it negative


@dataclass(frozen=True)
class GaussianDP(Postprocessor):
    """Clients send a clipped and noised change of the server state, and nothing else.

    A client applies the server's step to its own update, and sends the resulting change of weights and centroids. All
    changes have equal weight, and the server applies their mean. A bounded change has a bounded influence on a mean,
    but not on a quotient of two sums (Eq. 10 and 11), whose denominator noise could bring near zero.
    """

    clip: float  # C: the largest L2 norm of the change of the weights, of running statistics, or of `aux`
    noise: float  # sigma: standard deviation of the noise on the sum over a cohort, in units of C
    cohort: int  # clients that share the noise
    key: bytes = field(default=b"", repr=False)  # a site's secret that its noise is derived from; empty in simulations

    def zero_update(self, zero: Update, server_state: ServerState) -> Update:
        """Return no change of the server state."""
        return Update(zeros_like(server_state.model), 0.0, zeros_like(server_state.aux))

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Return the private change of the server state, with weight 1.

        Metrics are dropped, since counts and losses would leak information. An unusable update becomes a zero change,
        with noise like any other. With a key, the same change gets the same noise, so a coordinator that repeats a
        round cannot average it out.
        """
        usable = 0 < update.weight < math.inf
        next_state = server_step(server_state, update, RoundContext(ctx.index, ctx.seed)) if usable else server_state
        change = scaled_difference(_flatten(next_state), _flatten(server_state), 1.0)
        kinds = sorted({_kind(name) for name in change})
        parts = [{name: value for name, value in change.items() if _kind(name) == kind} for kind in kinds]
        rng = (
            secret_bytes(self.key, str(ctx.index), str(ctx.client), digest(change)) if self.key else ctx.rng("privacy")
        )
        private: Tensors = {}
        for part in privatize(parts, self.clip, self.noise, self.cohort, rng):
            private |= part
        return Update(
            {name: private[f"model/{name}"] for name in server_state.model},
            1.0,
            {name: private[f"aux/{name}"] for name in server_state.aux},
        )

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Return the server state plus the mean change; the method's own step was taken on the clients."""
        return replace(
            server_state,
            model=_add_mean(server_state.model, total.model, total.weight),
            aux=_add_mean(server_state.aux, total.aux, total.weight),
        )

    def opened(self, total: Update) -> None:
        """Return None: the update cannot be recovered from its private form."""
        return None


def _flatten(server_state: ServerState) -> Tensors:
    groups = {"model": server_state.model, "aux": server_state.aux}
    return {f"{group}/{name}": value for group, named in groups.items() for name, value in named.items()}


def _kind(name: str) -> str:
    """Return the part of a change that a tensor belongs to; parts have different units and are clipped separately.

    In early rounds running statistics change much more than weights.
    """
    return "statistics" if is_statistic(name) else name.partition("/")[0]


def _add_mean(old: Tensors, changes: Tensors, count: float) -> Tensors:
    """Return the tensors after the mean change; running variances stay positive."""
    new = {name: value + changes[name] / count for name, value in old.items()}
    variances = (name for name in old if name.endswith("running_var"))
    return new | {name: torch.maximum(new[name], _MIN_VARIANCE_SHARE * old[name]) for name in variances}
