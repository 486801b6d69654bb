"""Shamir's shares of seeds: a majority of the sites can put a seed together, and fewer learn nothing about it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import combinations, islice

from Crypto.Protocol.SecretSharing import Shamir

from rofl.federation.masking.mask_key import SEED_BYTES

_TRIES = 100  # further choices of shares to try, where somebody sent wrong ones


def majority(sites: int) -> int:
    """Return how many sites must work together to unmask a sum.

    Two groups of that size always have a site in common, and a site answers once for a sum. So a coordinator that
    tells one group that a site's sums arrived, and another that they did not, gets too few shares of either.

    >>> [majority(sites) for sites in (3, 4, 5)]
    [2, 3, 3]
    """
    return sites // 2 + 1


def split_seed(seed: bytes, sites: int) -> list[bytes]:
    """Return one share of a seed for each of the sites, in their order."""
    return [share for _, share in Shamir.split(majority(sites), sites, seed, ssss=False)]


def combine_shares(shares: Mapping[int, bytes], sites: int, commitment: bytes) -> bytes | None:
    """Return the seed that shares are of, or None where it cannot be had from them.

    Args:
        shares: By the place of the site that sent each, counted from 0.
        sites: How many sites got shares.
        commitment: `commit` of the seed; wrong shares are recognized by it, and others are tried.
    """
    usable = {place: share for place, share in shares.items() if len(share) == SEED_BYTES}
    if len(usable) < majority(sites):
        return None
    for places in _choices(sorted(usable), majority(sites)):
        seed: bytes = Shamir.combine([(place + 1, usable[place]) for place in places], ssss=False)
        if commit(seed) == commitment:
            return seed
    return None


def _choices(places: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """Yield choices of so many places: first each run of neighbours, so that any one place is soon left out."""
    around = [*places, *places[: size - 1]]
    for start in range(len(places) if len(places) > size else 1):
        yield tuple(sorted(around[start : start + size]))
    yield from islice(combinations(places, size), _TRIES)


def commit(seed: bytes) -> bytes:
    """Return a hash of a seed; it reveals nothing about a random seed."""
    return sha256(b"rofl seed" + seed).digest()


def cut(text: bytes, pieces: int) -> list[bytes]:
    """Return a text of so many shares as a list of them.

    Raises:
        ValueError: If it has another length.
    """
    if len(text) != pieces * SEED_BYTES:
        raise ValueError(f"it does not hold {pieces} shares")
    return [text[start : start + SEED_BYTES] for start in range(0, len(text), SEED_BYTES)]


def join(shares: Iterable[bytes]) -> bytes:
    """Return shares as one text, for `cut`."""
    return b"".join(shares)
