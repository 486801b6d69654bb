"""The only source of randomness: every generator is a function of a seed and a key."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from rofl.core.tensors import CPU


def derive(seed: int, *key: int | str) -> int:
    """Mix a seed and a key into one 63-bit seed.

    Neighbouring keys give unrelated seeds, and nothing depends on the order in which they are asked for:
    this is what keeps a run's bits independent of the number of workers.

    >>> derive(0, "noise") == derive(0, "noise")
    True
    >>> derive(0, 1, 23) == derive(0, 12, 3)
    False
    """
    text = "\x1f".join([str(seed), *(f"str:{part}" if isinstance(part, str) else f"int:{int(part)}" for part in key)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *key: int | str) -> torch.Generator:
    """A torch generator for one purpose."""
    return torch.Generator().manual_seed(derive(seed, *key))


def numpy_generator(seed: int, *key: int | str) -> np.random.Generator:
    """A numpy generator for one purpose (Dirichlet draws, which torch takes from global state only)."""
    return np.random.default_rng(derive(seed, *key))


def sample(population: int, count: int, rng: torch.Generator) -> list[int]:
    """`torch.randperm(population)[:count]` without the rest of it: time and memory follow `count` alone.

    >>> sample(10**9, 3, generator(0, "cohort")) == sample(10**9, 3, generator(0, "cohort"))
    True
    >>> sample(20, 5, generator(0, "cohort")) == torch.randperm(20, generator=generator(0, "cohort"))[:5].tolist()
    True
    """
    count = min(count, population)
    pairs = torch.empty((count + 1) // 2, dtype=torch.int64).random_(-(2**63), None, generator=rng)  # 64 bits each
    words = [word & 0xFFFFFFFF for pair in pairs.tolist() for word in (pair >> 32, pair)]
    moved: dict[int, int] = {}  # Fisher and Yates' shuffle of 0 ... population - 1, as far as it is known
    drawn = []
    for place in range(count):
        other = place + words[place] % (population - place)
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return drawn


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed what takes no generator (layer initialisation, dropout), and give the caller's state back afterwards.

    Dropout draws where the network is: that device's state is given back too.
    """
    with torch.random.fork_rng(devices=[] if device == CPU else [device], device_type=device.type):
        torch.manual_seed(seed)
        yield
