"""Masks: long vectors of random-looking integers that follow from short seeds, by ChaCha20."""

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from rofl.federation.masking.mask_key import KEY_BYTES, derive_bytes

Vector = NDArray[np.int64]  # modulo 2^64: numpy wraps around without a word

_NONCE = bytes(16)  # a seed makes one mask
_PIECE = 2**17  # integers at a time, so that a large model needs no second buffer of its size


def add_mask(vector: Vector, seed: bytes, sign: int) -> None:
    """Add the mask of a seed to a vector, in place.

    Args:
        vector: What to mask or unmask.
        seed: What the mask follows from.
        sign: 1 to add it, -1 to subtract it.
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
