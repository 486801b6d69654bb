"""The only source of randomness, and the number of torch's threads: the bits of a result depend on both.

Every generator is a function of a seed and a key. A key names a purpose, such as ("noise", client). No generator
depends on a process or on the order of calls, so a run gives the same bits for any number of workers.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from rofl.core.tensors import CPU


def derive(seed: int, *key: int | str) -> int:
    """Return a 63-bit seed that is a hash of a seed and a key; similar keys give unrelated seeds.

    Args:
        seed: of the run.
        *key: strings and integers that name the purpose.

    >>> derive(0, "noise") == derive(0, "noise")
    True
    >>> derive(0, 1, 23) == derive(0, 12, 3)
    False
    """
    text = "\x1f".join([str(seed), *(f"str:{part}" if isinstance(part, str) else f"int:{int(part)}" for part in key)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *key: int | str) -> torch.Generator:
    """Return a torch generator for one purpose; see `derive`."""
    return torch.Generator().manual_seed(derive(seed, *key))


def numpy_generator(seed: int, *key: int | str) -> np.random.Generator:
    """Return a numpy generator for one purpose; for Dirichlet draws, for which torch accepts no generator."""
    return np.random.default_rng(derive(seed, *key))


def sample(population: int, count: int, rng: torch.Generator) -> list[int]:
    """Return `torch.randperm(population)[:count]` in time and memory that depend on `count` alone.

    Args:
        population: samples are drawn from 0 to population - 1, without replacement.
        count: the number of samples; at most `population`.
        rng: the random generator.

    >>> sample(10**9, 3, generator(0, "cohort")) == sample(10**9, 3, generator(0, "cohort"))
    True
    >>> sample(20, 5, generator(0, "cohort")) == torch.randperm(20, generator=generator(0, "cohort"))[:5].tolist()
    True
    """
    count = min(count, population)
    pairs = torch.empty((count + 1) // 2, dtype=torch.int64).random_(
        -(2**63), None, generator=rng
    )  # 64 random bits each
    words = [word & 0xFFFFFFFF for pair in pairs.tolist() for word in (pair >> 32, pair)]
    moved: dict[int, int] = {}  # the entries of a Fisher-Yates shuffle that differ from the identity
    drawn = []
    for place in range(count):
        other = place + words[place] % (population - place)
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return drawn


@contextmanager
def seeded(seed: int, device: torch.device = CPU) -> Iterator[None]:
    """Seed torch's global state inside a `with` block, and restore the caller's state afterwards.

    For operations that accept no generator: layer initialisation and dropout.

    Args:
        seed: the seed inside the block.
        device: where the network is; dropout draws there, so that device's state is restored too.
    """
    with torch.random.fork_rng(devices=[] if device == CPU else [device], device_type=device.type):
        if device == CPU:
            torch.default_generator.manual_seed(seed)  # the next line would seed every other device too, and is slow
        else:
            torch.manual_seed(seed)
        yield


@contextmanager
def single_thread() -> Iterator[None]:
    """Limit torch to one thread inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
