"""What a bad site sends in the place of its update: its program is modified, so that it clips nothing.

Each attack counts its norms as they are, since an update that does not is refused for that alone.
"""

from collections.abc import Callable
from dataclasses import replace

import torch

from rofl.core.dp import l2_norm
from rofl.core.norm_counts import count_norm
from rofl.core.rng import generator
from rofl.core.tensors import Tensors
from rofl.methods.base import NORMS, ServerState, Update, without_bounds
from rofl.methods.postprocessors.norm_bounds import NORM
from rofl.methods.weights import is_statistic

Attack = Callable[[Update, ServerState, int], Update]  # honest update, server state, round -> what is sent
ONCE = 6  # the round of the attack that happens once
FLIPPED = "boosted label flipping"  # the site trains on wrong labels, too


def _scaled(update: Update, factor: float) -> Update:
    return replace(update, model={name: factor * value for name, value in update.model.items()})


def _first_weights(update: Update, change: Callable[[torch.Tensor], torch.Tensor]) -> Update:
    name = next(name for name in update.model if not is_statistic(name))
    return replace(update, model={**update.model, name: change(update.model[name])})


def _variance(update: Update, server_state: ServerState, index: int) -> Update:
    low = {name: torch.full_like(value, -1e6 * update.weight) for name, value in update.model.items() if "_var" in name}
    return replace(update, model={**update.model, **low})


def _similarity(update: Update, server_state: ServerState, index: int) -> Update:
    """Nearly cancel the similarities of four others, which are about 0.92 each."""
    return replace(update, aux={**update.aux, "similarity": torch.full_like(update.aux["similarity"], -3.68)})


def _at_bound(update: Update, server_state: ServerState, direction: Tensors) -> Update:
    """Go as far as the bound allows in a direction; running statistics stay honest."""
    weights = {name: value for name, value in direction.items() if not is_statistic(name)}
    bound = float(server_state.aux[NORM][0]) if NORM in server_state.aux else 3 * l2_norm(weights) / update.weight
    factor = 0.999 * bound * update.weight / max(l2_norm(weights), 1e-12)
    return replace(update, model={**update.model, **{name: factor * value for name, value in weights.items()}})


def _noise(update: Update, server_state: ServerState, index: int) -> Update:
    rng = generator(7, index)
    return _at_bound(
        update, server_state, {name: torch.randn(value.shape, generator=rng) for name, value in update.model.items()}
    )


def _flip(update: Update, server_state: ServerState, index: int) -> Update:
    return _at_bound(update, server_state, {name: -value for name, value in update.model.items()})


def _same(update: Update, server_state: ServerState, index: int) -> Update:
    return _at_bound(update, server_state, {name: torch.ones_like(value) for name, value in update.model.items()})


def _centroids(update: Update, server_state: ServerState, index: int) -> Update:
    return replace(update, aux={**update.aux, "centroids": 3 * update.aux["centroids"].roll(1, dims=0)})


ATTACKS: dict[str, Attack] = {
    "n_k = 1e9": lambda update, state, index: replace(_scaled(update, 1e9 / update.weight), weight=1e9),
    "scaled x1000": lambda update, state, index: _scaled(update, 1000),
    "scaled x-10": lambda update, state, index: _scaled(update, -10),
    "running variance -1e6": _variance,
    "1e36 in one tensor": lambda update, state, index: _first_weights(
        update, lambda value: torch.full_like(value, 1e36)
    ),
    "similarities near 0 in the denominator": _similarity,
    FLIPPED: lambda update, state, index: _scaled(update, 5),
    "not a number": lambda update, state, index: _first_weights(update, lambda value: value * float("nan")),
    "sign flipped, as long as the bound allows": _flip,
    "random, as long as the bound allows": _noise,
    "the same value everywhere, as long as the bound allows": _same,
    "no change at all": lambda update, state, index: _scaled(update, 0),
    "centroids of other classes, three times as long": _centroids,
    f"x1000 in round {ONCE} only": lambda update, state, index: _scaled(update, 1000 if index == ONCE else 1),
}


def with_counts(update: Update) -> Update:
    """Return the update with its norms counted as they are."""
    if NORMS not in update.aux:
        return update
    parts = [[value for name, value in update.model.items() if is_statistic(name) == kind] for kind in (False, True)]
    norms = [l2_norm(dict(enumerate(part))) / update.weight for part in parts]  # type: ignore[arg-type]
    norms += [l2_norm({name: update.aux[name]}) for name in sorted(without_bounds(update.aux))]
    return replace(update, aux={**update.aux, NORMS: torch.stack([count_norm(norm) for norm in norms])})
