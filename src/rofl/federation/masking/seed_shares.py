"""Shamir's shares of seeds: a majority of the sites can put a seed together, and fewer learn nothing about it."""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from Crypto.Protocol.SecretSharing import Shamir

from rofl.federation.masking.mask_key import SEED_BYTES

MARK_BYTES = 16


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
    """Return the seed that shares are of, or None where there are too few, or the seed is another one.

    Args:
        shares: By the place of the site that sent each, counted from 0; all have the mark that they were dealt with.
        sites: How many sites got shares.
        commitment: `commit` of the seed.
    """
    if len(shares) < majority(sites):
        return None
    chosen = sorted(shares)[: majority(sites)]
    seed: bytes = Shamir.combine([(place + 1, shares[place]) for place in chosen], ssss=False)
    return seed if commit(seed) == commitment else None


def commit(seed: bytes) -> bytes:
    """Return a hash of a seed; it reveals nothing about a random seed."""
    return sha256(b"rofl seed" + seed).digest()


def mark(share: bytes) -> bytes:
    """Return a hash of a share, by which a wrong one is recognized; it reveals nothing about a share, which is random.

    Without it, wrong shares would have to be searched for among all choices of a majority, of which there are too many.
    """
    return sha256(b"rofl share" + share).digest()[:MARK_BYTES]


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
