"""Shamir's secret sharing in GF(2^128), for many secrets at once.

The field and the shares are those of `Crypto.Protocol.SecretSharing` (PyCryptodome), which shares one secret at a
time: with thirty sites, each of which shares thirty seeds in a round, that took 13 seconds of processor time a round.
Here the secrets stand side by side in one long integer, and a polynomial is evaluated for all of them at once. No
branch depends on the secrets.
"""

import secrets
from collections.abc import Sequence
from functools import lru_cache

SECRET_BYTES = 16
MOST = 2**16 - 1  # shares of a secret

_BITS = 128
_LANE = 160  # bits of a secret and of the 16 by which a product with the number of a share is longer, in whole bytes
_ONES = (1 << _BITS) - 1
_FEEDBACK = (0, 1, 2, 7)  # x^128 = x^7 + x^2 + x + 1


def split(seeds: Sequence[bytes], threshold: int, shares: int) -> list[list[bytes]]:
    """Share secrets of 16 bytes, so that `threshold` shares give a secret and fewer tell nothing about it.

    Args:
        seeds: The secrets.
        threshold: The number of shares that recover a secret.
        shares: The number of shares of each secret.

    Returns:
        For each share, numbered from 1, the shares of all secrets.
    """
    if not 1 <= threshold <= shares <= MOST or any(len(seed) != SECRET_BYTES for seed in seeds):
        raise ValueError("these secrets cannot be shared")
    count = len(seeds)
    coefficients = [_pack([secrets.token_bytes(SECRET_BYTES) for _ in seeds]) for _ in range(threshold - 1)]
    coefficients.append(_pack(seeds))
    low = _pack([b"\xff" * SECRET_BYTES] * count)
    found = []
    for number in range(1, shares + 1):
        value = 0
        for coefficient in coefficients:  # Horner's rule
            value = _times_small(value, number, low) ^ coefficient
        found.append(_unpack(value, count))
    return found


def combine(shares: Sequence[tuple[int, bytes]]) -> bytes:
    """Recover a secret.

    Args:
        shares: As many shares as the threshold says, with their numbers.
    """
    numbers = tuple(number for number, _ in shares)
    if not all(1 <= number <= MOST for number in numbers) or len(set(numbers)) != len(numbers):
        raise ValueError("these are no different shares of a secret")
    value = 0
    for factor, (_, share) in zip(_factors_at_zero(numbers), shares, strict=True):
        value ^= multiply(int.from_bytes(share), factor)
    return value.to_bytes(SECRET_BYTES)


def multiply(first: int, second: int) -> int:
    """Return the product of two elements of the field."""
    product = 0
    for place in range(_BITS):
        product ^= (first << place) * (second >> place & 1)
    for _ in range(2):  # the first reduction leaves at most 7 bits too many
        product = product & _ONES ^ _fold(product >> _BITS)
    return product


@lru_cache(maxsize=4096)
def inverse(element: int) -> int:
    """Return the inverse of an element of the field, as its power 2^128 - 2."""
    square, power = element, 1
    for _ in range(_BITS - 1):
        square = multiply(square, square)
        power = multiply(power, square)
    return power


@lru_cache(maxsize=256)  # shares of the same sites recover all seeds of a sum
def _factors_at_zero(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return Lagrange's factors, with which shares add up to the value of their polynomial at zero."""
    return tuple(
        _product([multiply(other, inverse(other ^ number)) for other in numbers if other != number])
        for number in numbers
    )


def _product(factors: Sequence[int]) -> int:
    found = 1
    for factor in factors:
        found = multiply(found, factor)
    return found


def _times_small(value: int, number: int, low: int) -> int:
    """Return the product of every secret in a packed value and a number below 2^16.

    Args:
        value: The packed secrets.
        number: The number, which is public.
        low: The bits of a packed value that belong to secrets.
    """
    product = 0
    for place in range(number.bit_length()):
        if number >> place & 1:
            product ^= value << place
    return product & low ^ _fold((product & ~low) >> _BITS)


def _fold(high: int) -> int:
    """Return what the bits from the 128th on amount to in the field."""
    found = 0
    for place in _FEEDBACK:
        found ^= high << place
    return found


def _pack(seeds: Sequence[bytes]) -> int:
    lane = _LANE // 8
    return int.from_bytes(b"".join(seed.rjust(lane, b"\0") for seed in seeds))


def _unpack(value: int, count: int) -> list[bytes]:
    lane = _LANE // 8
    text = value.to_bytes(lane * count)
    return [text[start + lane - SECRET_BYTES : start + lane] for start in range(0, lane * count, lane)]
