"""Partitions of a data set over clients. Every function returns one tensor of sorted rows for each client."""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from rofl.errors import UserError

_TRIES = 1000
_LESS_SKEW = "a larger data.alpha, fewer clients, or a smaller data.min_samples"
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
        _LESS_SKEW,
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


def bernoulli(
    labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, probability: float, alpha: float
) -> list[Tensor]:
    """Return parts as FedCorr draws them (Xu et al. 2022): each client holds a class with a probability.

    The samples of a class are then assigned to the clients that hold it, by Dirichlet(alpha) shares. A draw is
    repeated if a client has no class, a class has no client, or a client has fewer than `minimum` samples.

    Args:
        labels: (N,) by which clients differ: true ones, if known.
        clients: the number of parts.
        minimum: samples that each client must get.
        rng: the random generator.
        probability: that a client holds a class.
        alpha: the concentration of the shares, above 0.

    Raises:
        UserError: no draw out of 1000 fits.
    """
    check_enough(len(labels), clients, minimum)
    names, place = np.unique(labels.numpy(), return_inverse=True)
    for _ in range(_TRIES):
        holds = rng.random((clients, len(names))) < probability
        if not (holds.any(axis=0).all() and holds.any(axis=1).all()):
            continue
        owner = np.empty(len(labels), dtype=np.int64)
        for name in range(len(names)):
            members, holders = np.flatnonzero(place == name), np.flatnonzero(holds[:, name])
            owner[members] = rng.choice(holders, len(members), p=rng.dirichlet([alpha] * len(holders)))
        if np.bincount(owner, minlength=clients).min() >= minimum:
            return _by_owner(owner, clients)
    raise UserError(
        f"No draw in {_TRIES} gave each of {clients} clients {minimum} samples, and each class a client.",
        f"a larger data.class_probability, {_LESS_SKEW}",
    )


def by_classes(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, count: int) -> list[Tensor]:
    """Return parts with a fixed number of classes each.

    Classes are assigned as evenly as possible, and the samples of a class equally among its clients.

    Args:
        labels: (N,) by which clients differ: true ones, if known.
        clients: the number of parts.
        minimum: samples that each client must get.
        rng: the random generator.
        count: classes of each client.

    Raises:
        UserError: there are too few classes, too few clients for all classes, or too few samples.
    """
    names, place = np.unique(labels.numpy(), return_inverse=True)
    if count > len(names) or count * clients < len(names):
        raise UserError(
            f"{clients} clients with {count} classes each cannot share out {len(names)} classes.", "data.client_classes"
        )
    held = [_deal(client, count, len(names)) for client in rng.permutation(clients)]  # client -> its classes
    order = rng.permutation(len(names))
    owner = np.empty(len(labels), dtype=np.int64)
    for name in range(len(names)):
        holders = [client for client in range(clients) if name in order[held[client]]]
        members = rng.permutation(np.flatnonzero(place == name))
        for holder, piece in zip(holders, np.array_split(members, len(holders)), strict=True):
            owner[piece] = holder
    return at_least(minimum, _by_owner(owner, clients))


def quantity(labels: Tensor, clients: int, minimum: int, rng: np.random.Generator, alpha: float) -> list[Tensor]:
    """Return random parts of unequal sizes: a minimum for each client, and Dirichlet(alpha) shares of the others.

    Args:
        labels: (N,); only their number matters here.
        clients: the number of parts.
        minimum: samples that each client must get.
        rng: the random generator.
        alpha: the concentration, above 0; the smaller, the more the sizes differ.

    Raises:
        UserError: there are too few samples.
    """
    check_enough(len(labels), clients, minimum)
    spare = len(labels) - clients * minimum
    cuts = (np.cumsum(rng.dirichlet([alpha] * clients))[:-1] * spare).round().astype(int)
    sizes = np.diff([0, *cuts, spare]) + minimum
    return sorted_parts(np.split(rng.permutation(len(labels)), np.cumsum(sizes)[:-1]))


def _deal(turn: int, count: int, classes: int) -> list[int]:
    """Return the classes of the next client; over all clients, classes occur equally often."""
    return [(turn * count + step) % classes for step in range(count)]


def _by_owner(owner: np.ndarray, clients: int) -> list[Tensor]:
    """Return the rows of each client from the owner of each row, (N,)."""
    return sorted_parts([np.flatnonzero(owner == client) for client in range(clients)])
