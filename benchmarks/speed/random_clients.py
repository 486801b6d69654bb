"""Clients of random MNIST-like images, which every engine makes for itself.

Nothing can be learnt from them, so nearly every sample gets a pseudo-label: the worst case for their cost.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from rofl.core.rng import generator
from rofl.core.tensors import Tensors
from rofl.data import Transform
from rofl.methods import Rofl
from rofl.simulation.client import ClientConfig
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.worker_pool import WorkerPool

SAMPLES = 200  # of each client
WORKERS = 2
SEED = 0
MEAN, STD, CROP = 0.13, 0.31, 2
METHOD = Rofl(tau=0.4, t_pl=1, cen_start=0.0, cen_rise=0.0)  # at its full cost from the first round on


def task(width: float) -> ClientConfig:
    """Return the method with the paper's network at a width."""
    network = NetworkSpec("cnn9", (1, 28, 28), 10, width, SEED)
    return ClientConfig(METHOD, network, Transform((MEAN,), (STD,), crop=CROP), SEED)


def samples(clients: int) -> Tensors:
    """Return pixels, labels and the clients' rows, as an executor takes them."""
    rng = generator(SEED, "random clients")
    pixels = torch.randint(0, 256, (clients * SAMPLES, 1, 28, 28), dtype=torch.uint8, generator=rng)
    labels = torch.randint(0, 10, (len(pixels),), generator=rng)
    return shared_inputs(pixels, pixels[:10], labels, list(torch.arange(len(pixels)).split(SAMPLES)))


@contextmanager
def simulation(width: float, clients: int, cohort: int) -> Iterator[Simulation]:
    """Yield our engine; its worker processes end with the block."""
    chosen = task(width)
    pool = WorkerPool(WORKERS, chosen, samples(clients), flatten_state(METHOD.init(chosen.network.build())))
    try:
        yield Simulation(pool, METHOD, [SAMPLES] * clients, cohort, SEED)
    finally:
        pool.close()
