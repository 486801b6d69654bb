"""Fixed-point numbers: integer multiples of a power of two, whose sums are exact and independent of the order.

A sum of floats depends on the order of its summands, and floats cannot be masked. Integers modulo 2^64 have neither
problem: `int64` tensors wrap around when they are added, and the sum is right as long as the true sum lies within
+-2^63. `largest` returns the largest summand for which this holds.
"""

import math

import torch
from torch import Tensor

from rofl.core.tensors import CPU, Tensors

TENSOR_BITS = 24  # after the point: a step of 6e-8, as fine as float32 is near 1
NUMBER_BITS = 16  # after the point, of a client's weight and metrics: sums over samples, which are larger
_SUM = 1 << 62  # the largest sum of tensors, in steps; twice as much would still not wrap around
_EXACT = 1 << 53  # the largest sum of numbers, in steps: up to here float64 holds every integer


def largest(clients: int) -> float:
    """Return the largest absolute value that a tensor of one of `clients` clients may hold.

    >>> largest(clients=4) == 2**36
    True
    """
    return _SUM // clients / (1 << TENSOR_BITS)


def encode(tensors: Tensors, clients: int) -> Tensors:
    """Return float32 tensors as int64: multiples of 2^-24, rounded half to even.

    Args:
        tensors: the summand of one client.
        clients: the largest number of summands.

    Raises:
        ValueError: a tensor is not float32, not finite, or larger than `largest(clients)`; the message names it.

    >>> encode({"w": torch.tensor([1.0, -0.5])}, clients=2)["w"].tolist()
    [16777216, -8388608]
    """
    return {name: _encode(name, value, clients) for name, value in tensors.items()}


def _encode(name: str, value: Tensor, clients: int) -> Tensor:
    if value.dtype != torch.float32:
        raise ValueError(f"{name!r} is {value.dtype}, and fixed point is for torch.float32")
    exact = value.detach().to(CPU).double()  # of all places the CPU has float64
    if not bool(exact.isfinite().all()):
        raise ValueError(f"{name!r} is not finite")
    if exact.numel() and float(exact.abs().max()) > largest(clients):
        raise ValueError(f"{name!r} has a value above {largest(clients):.3g}, the largest in fixed point")
    return (exact * (1 << TENSOR_BITS)).round().long()  # `round` is half to even


def is_fixed(tensors: Tensors) -> bool:
    """Return whether tensors are in fixed point, as `encode` returns them."""
    return any(value.dtype == torch.int64 for value in tensors.values())


def decode(tensors: Tensors) -> Tensors:
    """Return a sum of encoded tensors as float32.

    >>> decode({"w": torch.tensor([16777216, -8388608])})["w"]
    tensor([ 1.0000, -0.5000])
    """
    return {name: (value.double() / (1 << TENSOR_BITS)).float() for name, value in tensors.items()}


def round_number(name: str, value: float, clients: int) -> float:
    """Return a number rounded to a multiple of 2^-16, half to even; sums of such floats are exact.

    Args:
        name: of the number, for the error message.
        value: the summand of one client.
        clients: how many summands there are at most.

    Raises:
        ValueError: it is not finite, or too large for exact sums.

    >>> round_number("loss", 1 / 3, clients=2)
    0.3333282470703125
    """
    if not math.isfinite(value):
        raise ValueError(f"its {name} is not finite")
    steps = round(value * (1 << NUMBER_BITS))  # half to even; an integer of any size
    if abs(steps) > _EXACT // clients:
        raise ValueError(f"its {name} is {value:.3g}, and the largest in fixed point is {largest_number(clients):.3g}")
    return steps / (1 << NUMBER_BITS)


def largest_number(clients: int) -> float:
    """Return the largest absolute value that a number of one of `clients` clients may have."""
    return _EXACT // clients / (1 << NUMBER_BITS)
