"""Who gets which samples. Every function maps the labels to one sorted index tensor per client."""

import numpy as np
import torch
from torch import Tensor

from rofl.errors import UserError

_TRIES = 1000


def iid(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator) -> list[Tensor]:
    """Shuffle and cut into equal parts (the paper's setting)."""
    _check(len(labels), clients, minimum)
    return _sorted(np.array_split(rng.permutation(len(labels)), clients))


def shards(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, per_client: int = 2) -> list[Tensor]:
    """Sort by label, cut into clients * per_client pieces, deal them out: few classes each (McMahan et al. 2017)."""
    _check(len(labels), clients, max(minimum, per_client))
    pieces = np.array_split(np.argsort(labels.numpy(), kind="stable"), clients * per_client)
    hands = rng.permutation(len(pieces)).reshape(clients, per_client)
    return _at_least(minimum, _sorted([np.concatenate([pieces[piece] for piece in hand]) for hand in hands]))


def dirichlet(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, alpha: float = 0.5) -> list[Tensor]:
    """Each class is spread over the clients by a Dirichlet(alpha) draw; small alpha, unequal clients.

    Draws again until every client has `minimum` samples, as is usual; a minimum that is out of reach is an error.
    """
    _check(len(labels), clients, minimum)
    members = [rng.permutation(np.flatnonzero(labels.numpy() == name)) for name in np.unique(labels.numpy())]
    for _ in range(_TRIES):
        hands: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for member in members:
            cuts = np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(member)
            for hand, piece in zip(hands, np.split(member, cuts.round().astype(int)), strict=True):
                hand.append(piece)
        if min(sum(map(len, hand)) for hand in hands) >= minimum:
            return _sorted([np.concatenate(hand) for hand in hands])
    raise UserError(
        f"No Dirichlet({alpha}) draw in {_TRIES} gave each of {clients} clients {minimum} samples.",
        "a larger data.alpha, fewer clients, or a smaller data.min_samples",
    )


def _sorted(parts: list[np.ndarray]) -> list[Tensor]:
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def _at_least(minimum: int, parts: list[Tensor]) -> list[Tensor]:
    smallest = min(len(part) for part in parts)
    if smallest < minimum:
        raise UserError(f"A client got {smallest} samples, fewer than data.min_samples = {minimum}.", "fewer clients")
    return parts


def _check(samples: int, clients: int, minimum: int) -> None:
    if samples < clients * minimum:
        raise UserError(
            f"{samples} samples are too few for {clients} clients with at least {minimum} each.", "fewer clients"
        )
