"""Partitions of a data set over clients. Every function returns one tensor of sorted rows for each client."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from rofl.errors import UserError

_TRIES = 1000
_MIN_TRAIN = 2  # rows that a client keeps: batch norm cannot train on one


def iid(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator) -> list[Tensor]:
    """Return equal random parts (the paper's setting).

    Args:
        labels: (N,); only their number matters here.
        clients: the number of parts.
        minimum: samples that each client must get.
        rng: the random generator.

    Raises:
        UserError: there are too few samples.
    """
    check_enough(len(labels), clients, minimum)
    return sorted_parts(np.array_split(rng.permutation(len(labels)), clients))


def shards(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, per_client: int = 2) -> list[Tensor]:
    """Return parts with few classes each: samples are sorted by label and cut into shards, which are dealt out.

    See McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data".

    Args:
        labels: (N,) by which clients differ: true ones, if known.
        clients: the number of parts.
        minimum: samples that each client must get.
        rng: the random generator.
        per_client: shards of each client.

    Raises:
        UserError: there are too few samples.
    """
    check_enough(len(labels), clients, max(minimum, per_client))
    pieces = np.array_split(np.argsort(labels.numpy(), kind="stable"), clients * per_client)
    hands = rng.permutation(len(pieces)).reshape(clients, per_client)
    return at_least(minimum, sorted_parts([np.concatenate([pieces[piece] for piece in hand]) for hand in hands]))


def dirichlet(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, alpha: float = 0.5) -> list[Tensor]:
    """Return parts whose class shares are Dirichlet(alpha) draws; the smaller alpha, the more the clients differ.

    Draws are repeated until every client has `minimum` samples.

    Args:
        labels: (N,) by which clients differ: true ones, if known.
        clients: the number of parts.
        minimum: samples that each client must get.
        rng: the random generator.
        alpha: the concentration, above 0.

    Raises:
        UserError: no draw out of 1000 gave every client enough samples.
    """
    check_enough(len(labels), clients, minimum)
    members = [rng.permutation(np.flatnonzero(labels.numpy() == name)) for name in np.unique(labels.numpy())]
    for _ in range(_TRIES):
        hands: list[list[np.ndarray]] = [[] for _ in range(clients)]
        for member in members:
            cuts = np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * len(member)
            for hand, piece in zip(hands, np.split(member, cuts.round().astype(int)), strict=True):
                hand.append(piece)
        if min(sum(map(len, hand)) for hand in hands) >= minimum:
            return sorted_parts([np.concatenate(hand) for hand in hands])
    raise UserError(
        f"No Dirichlet({alpha}) draw in {_TRIES} gave each of {clients} clients {minimum} samples.",
        "a larger data.alpha, fewer clients, or a smaller data.min_samples",
    )


def sorted_parts(parts: Sequence[np.ndarray]) -> list[Tensor]:
    """Return each part as a sorted int64 tensor."""
    return [torch.from_numpy(np.sort(part).astype(np.int64)) for part in parts]


def at_least(minimum: int, parts: list[Tensor]) -> list[Tensor]:
    """Return the parts, or raise a UserError if one is smaller than the minimum."""
    smallest = min(len(part) for part in parts)
    if smallest < minimum:
        raise UserError(f"A client got {smallest} samples, fewer than data.min_samples = {minimum}.", "fewer clients")
    return parts


def hold_out(
    parts: Sequence[Tensor], share: float, draws: Iterable[torch.Generator]
) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Return training rows and held-out rows of each client; every client keeps at least two for training.

    Args:
        parts: the rows of each client.
        share: the share of rows to hold out.
        draws: a random generator for each client.
    """
    kept, held = [], []
    for rows, draw in zip(parts, draws, strict=True):
        count = max(0, min(int(share * len(rows)), len(rows) - _MIN_TRAIN))
        shuffled = rows[torch.randperm(len(rows), generator=draw)]
        held.append(shuffled[:count].sort().values)
        kept.append(shuffled[count:].sort().values)
    return kept, tuple(held)


def check_enough(samples: int, clients: int, minimum: int) -> None:
    """Raise a UserError if there are too few samples for the clients.

    Args:
        samples: the number of samples.
        clients: the number of clients.
        minimum: samples that each client must get.
    """
    if samples < clients * minimum:
        raise UserError(
            f"{samples} samples are too few for {clients} clients with at least {minimum} each.", "fewer clients"
        )
