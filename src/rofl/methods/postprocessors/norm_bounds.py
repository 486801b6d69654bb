"""Bounds on one client's influence on a round; they need only sums, so they also work with masking.

A client clips its change of the weights to a bound that the server sends. The server adapts the bound to the clients'
norms, of which it receives only counts (`rofl.core.norm_counts`), and checks each update that it sees, or their sum.
The checks never refuse an honest client.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from rofl.core.dp import clip_norm, l2_norm
from rofl.core.norm_counts import BINS, count_norm, counts_once, quantile
from rofl.core.tensors import Tensors
from rofl.methods.base import BOUNDS, NORMS, Claims, RoundContext, ServerState, Update, without_bounds
from rofl.methods.postprocessors.postprocessor import Postprocessor, ServerStep
from rofl.methods.weights import is_statistic

NORM = f"{BOUNDS}norm"  # down: (2,) the largest norms
_ROUNDING = 1.01  # tolerance for rounding to bfloat16 or to integers
_AUX_FACTOR = 64.0  # `aux` differs between methods and honest clients: only gross errors are refused
_MOST_CHANGE = 2.0  # of a bound from one round to the next, up or down
_FEWEST = 3  # least number of clients for a meaningful quantile
_HALF = 0.5  # share of the samples above which one client dominates the norm of the sum
_CLIPPED = ("weights", "running statistics")


@dataclass(frozen=True)
class NormBounds(Postprocessor):
    """Clients clip their changes of weights and running statistics, and count their norms.

    The bound is `margin` times a quantile of the norms, so it rarely changes an honest update.
    """

    share: float = 0.5  # the quantile
    margin: float = 2.0  # the bound is this multiple of the quantile
    clips: bool = True  # off under differential privacy, which clips by itself and adds noise

    looks_at_updates: ClassVar[bool] = True

    def init(self, server_state: ServerState) -> ServerState:
        """Return the state with first bounds: `margin` times the norms of the initial weights and statistics."""
        norms = [l2_norm(part) for part in _split(server_state.model)]
        return replace(server_state, aux={**server_state.aux, NORM: self.margin * torch.tensor(norms)})

    def received_state(self, server_state: ServerState) -> ServerState:
        """Return the state without the bounds, for the method."""
        return replace(server_state, aux=without_bounds(server_state.aux))

    def zero_update(self, zero: Update, server_state: ServerState) -> Update:
        """Return the zero with counts of zero."""
        return replace(zero, aux={**zero.aux, NORMS: torch.zeros(len(_CLIPPED) + len(zero.aux), BINS)})

    def client_update(
        self, update: Update, server_state: ServerState, ctx: RoundContext, server_step: ServerStep
    ) -> Update:
        """Return the update with its change clipped, and the counts of its original norms."""
        counts = torch.stack([count_norm(norm) for _, norm in _norms(update)])
        model: Tensors = {}
        for part, bound in zip(_split(update.model), server_state.aux[NORM].tolist(), strict=True):
            model |= clip_norm(part, bound * max(update.weight, 0.0)) if self.clips else part
        model = {name: model[name] for name in update.model}
        return replace(update, model=model, aux={**update.aux, NORMS: counts.to(server_state.aux[NORM].device)})

    def server_update(
        self, server_state: ServerState, total: Update, ctx: RoundContext, server_step: ServerStep
    ) -> ServerState:
        """Return the state after the step of the method, with the bounds for the next round."""
        known = replace(server_state, aux=without_bounds(server_state.aux))
        stepped = server_step(known, replace(total, aux=without_bounds(total.aux)), ctx)
        return replace(stepped, aux={**stepped.aux, NORM: self._next(server_state.aux[NORM], total.aux[NORMS])})

    def opened(self, total: Update) -> Update:
        """Return the update or sum without the counts."""
        return replace(total, aux=without_bounds(total.aux))

    def check(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Return the problem with an update or a sum: weight, counts, norms or running variances.

        Args:
            total: the update or the sum.
            server_state: the state that was broadcast, with the bounds.
            claims: the declared clients and samples.
        """
        counts = total.aux[NORMS]
        return (
            _check_numbers(total, claims)
            or _check_counts(counts, claims)
            or self._check_norms(total, server_state.aux[NORM].tolist(), counts, claims)
            # the noise of privacy may make a variance negative, and the server's step then keeps a part of the old one
            or (_check_variances(total, server_state) if self.clips else None)
        )

    def _check_norms(self, total: Update, bounds: list[float], counts: Tensor, claims: Claims) -> str | None:
        norms = counts if claims.norms is None else claims.norms
        for place, (name, norm) in enumerate(_norms(total)):
            usual, known = quantile(norms[place], self.share), float(norms[place].sum()) >= _FEWEST
            limit = float("inf")
            if place < len(_CLIPPED):
                if self.clips:
                    limit = bounds[place] * _ROUNDING
                if known and (claims.largest <= _HALF or not self.clips):
                    limit = min(limit, self.margin * usual * _ROUNDING)
            elif known:
                limit = _AUX_FACTOR * usual * claims.clients
            if not norm <= limit:
                return f"its {name} change by {norm:.3g} in norm, and at most {limit:.3g} is allowed"
            if claims.clients == 1 and not _fits(norm, counts[place], limit):
                return f"it counts another norm of its {name} than it has"
        return None

    def _next(self, bounds: Tensor, counts: Tensor) -> Tensor:
        """Return the next bounds: towards `margin` times the quantile, by at most a factor of two."""
        wanted = torch.tensor([self.margin * quantile(row, self.share) for row in counts[: len(_CLIPPED)]])
        return torch.minimum(torch.maximum(wanted.to(bounds), bounds / _MOST_CHANGE), bounds * _MOST_CHANGE)


def _split(model: Tensors) -> list[Tensors]:
    """Return the weights and the running statistics of a model or of a change."""
    weights = {name: value for name, value in model.items() if not is_statistic(name)}
    return [weights, {name: value for name, value in model.items() if is_statistic(name)}]


def _norms(update: Update) -> Iterator[tuple[str, float]]:
    """Yield name and norm of each part: of the mean change for the model, of the sums for `aux`."""
    for name, part in zip(_CLIPPED, _split(update.model), strict=True):
        yield name, l2_norm(part) / update.weight if update.weight > 0 else float("inf")
    for name in sorted(without_bounds(update.aux)):
        yield name, l2_norm({name: update.aux[name]})


def _fits(norm: float, row: Tensor, limit: float) -> bool:
    """Return whether a client's count matches its norm, up to rounding, or a norm clipped to the limit."""
    counted, own = int(row.argmax()), int(count_norm(norm).argmax())
    was_clipped = norm * _ROUNDING**2 >= limit and counted >= own
    return abs(counted - own) <= 1 or was_clipped


def _check_numbers(total: Update, claims: Claims) -> str | None:
    if total.weight > claims.samples * (1 + 1e-6):
        return f"its weight is {total.weight:.6g}, and {claims.samples:.6g} samples were declared"
    samples, confident = total.metrics.get("samples", 0.0), total.metrics.get("confident", 0.0)
    if samples < 0 or not 0 <= confident <= samples * (1 + 1e-6):
        return f"it counts {confident:.6g} confident samples of {samples:.6g}"
    return None


def _check_counts(counts: Tensor, claims: Claims) -> str | None:
    """Return the problem with counts of norms: each client must count once in each row."""
    return None if counts_once(counts, claims.clients) else "its norms are not counted once"


def _check_variances(total: Update, server_state: ServerState) -> str | None:
    for name, old in server_state.model.items():
        if name.endswith("running_var") and bool((old + total.model[name] / total.weight < -1e-4).any()):
            return f"it makes {name!r} negative"
    return None
