"""Seeds of masks: the masks that they generate, and their shares, with which a majority of the sites recovers them.

A mask is a long vector of pseudorandom integers (ChaCha20). Shares are those of Shamir's secret sharing: fewer than a
majority of the sites learn nothing about a seed.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from rofl.federation.masking import secret_sharing
from rofl.federation.masking.mask_key import KEY_BYTES, SEED_BYTES, derive_bytes

Vector = NDArray[np.int64]  # modulo 2^64: numpy wraps around without an error

MARK_BYTES = 16
_NONCE = bytes(16)  # constant, since every seed generates one mask only
_PIECE = 2**17  # integers at a time, so that a large model needs no second buffer of its size


def add_mask(vector: Vector, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to a vector, in place.

    Args:
        vector: The vector to mask or unmask.
        seed: The seed of the mask.
        sign: 1 to add the mask, -1 to subtract it.
    """
    key = derive_bytes(seed, b"", "mask stream", KEY_BYTES)
    stream = Cipher(ChaCha20(key, _NONCE), mode=None).encryptor()
    for start in range(0, len(vector), _PIECE):
        piece = vector[start : start + _PIECE]
        random = np.frombuffer(stream.update(bytes(8 * len(piece))), dtype="<i8")
        if sign > 0:
            np.add(piece, random, out=piece)
        else:
            np.subtract(piece, random, out=piece)


def majority(sites: int) -> int:
    """Return the number of sites that must cooperate to unmask a sum.

    Two groups of that size always have a site in common, and a site answers once for a sum. So a coordinator that
    tells one group that a site's sums arrived, and another group that they did not, gets too few shares of one kind.

    >>> [majority(sites) for sites in (3, 4, 5)]
    [2, 3, 3]
    """
    return sites // 2 + 1


def split_seeds(seeds: Sequence[bytes], sites: int) -> list[list[bytes]]:
    """Return for each of the sites, in their order, its share of each seed."""
    return secret_sharing.split(seeds, majority(sites), sites)


def combine_shares(shares: Mapping[int, bytes], sites: int, commitment: bytes) -> bytes | None:
    """Recover a seed from shares; return None if there are too few, or if the seed does not match the commitment.

    Args:
        shares: Shares whose marks are right, by the place of the site that sent them, counted from 0.
        sites: The number of sites that got shares.
        commitment: `commit_seed` of the seed.
    """
    if len(shares) < majority(sites):
        return None
    chosen = sorted(shares)[: majority(sites)]
    seed = secret_sharing.combine([(place + 1, shares[place]) for place in chosen])
    return seed if commit_seed(seed) == commitment else None


def commit_seed(seed: bytes) -> bytes:
    """Return a hash of a seed; it reveals nothing about a random seed."""
    return sha256(b"rofl seed" + seed).digest()


def mark_share(share: bytes) -> bytes:
    """Return a hash of a share, which identifies wrong shares and reveals nothing about a random share.

    Without marks, wrong shares could be found only by trying majorities, of which there are too many.
    """
    return sha256(b"rofl share" + share).digest()[:MARK_BYTES]


def unpack_shares(text: bytes, pieces: int) -> list[bytes]:
    """Split a text into `pieces` shares.

    Raises:
        ValueError: If the text has another length.
    """
    if len(text) != pieces * SEED_BYTES:
        raise ValueError(f"it does not hold {pieces} shares")
    return [text[start : start + SEED_BYTES] for start in range(0, len(text), SEED_BYTES)]


def pack_shares(shares: Iterable[bytes]) -> bytes:
    """Concatenate shares; `unpack_shares` splits them again."""
    return b"".join(shares)
