"""The price of robustness: a round of each method over a round of plain FedAvg."""

from statistics import median

import torch

from benchmarks.speed.pictures import pictures, transform
from benchmarks.speed.section import Aim, Section
from rofl.engines.bench import join_global, lay_out
from rofl.engines.client import NetworkSpec, Task
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool
from rofl.methods import CoTeaching, Joint, Method, Plain, Rofl, SelfLearning

LIMITS = {"rofl": 1.08, "joint": 1.10, "coteaching": 2.05}
ROUNDS = 5  # the first of them warms up and does not count
SCALES = {  # network, pixels of crop, samples of a client, settings
    "mnist-lite": (NetworkSpec("cnn9", (1, 28, 28), 10, 0.125, 0), 2, 300, {"batch": 50}),
    "digits": (NetworkSpec("small", (1, 8, 8), 10, 1.0, 0), 1, 72, {"batch": 20}),
}
COHORT = 2
HOW = f"""Seconds of a round with {COHORT} clients, on one thread of this process, every method at its full cost; 40 %
wrong labels. Rounds of all methods take turns; medians of {ROUNDS - 1}. The limits are for mnist-lite; on digits the
network is so small that a handful of operations on a batch shows."""


def methods(settings: dict[str, int]) -> dict[str, Method]:
    """All methods, each at its full cost from the first round on."""
    return {
        "plain": Plain(lr=0.1, **settings),
        "rofl": Rofl(lr=0.1, tau=0.4, t_pl=1, cen_start=0.0, cen_rise=0.0, **settings),
        "joint": Joint(lr=0.03, start=1, **settings),
        "coteaching": CoTeaching(lr=0.1, tau=0.4, **settings),
        "selflearning": SelfLearning(start=1, **settings),
    }


def simulation(method: Method, network: NetworkSpec, crop: int, samples: int) -> Simulation:
    """A few equal clients, run in this process."""
    pixels, labels = pictures(network.shape, COHORT * samples)
    task = Task(method, network, transform(network.shape, crop), seed=0)
    data = lay_out(pixels, pixels[:10], labels, list(torch.arange(len(pixels)).split(samples)))
    pool = Pool(0, task, data, join_global(method.begin(network.build())))
    return Simulation(pool, method, [samples] * COHORT, COHORT, seed=0)


def seconds(scale: str) -> dict[str, float]:
    """Of a round of each method; their rounds take turns, so that all see the same machine."""
    network, crop, samples, settings = SCALES[scale]
    rounds = {
        name: simulation(method, network, crop, samples).rounds(method.begin(network.build()), 1, ROUNDS)
        for name, method in methods(settings).items()
    }
    turns = [{name: next(source).seconds for name, source in rounds.items()} for _ in range(ROUNDS)]
    return {name: median(turn[name] for turn in turns[1:]) for name in rounds}


def measure() -> Section:
    """Both scales; the limits are for mnist-lite."""
    rows, aims = [], []
    for scale in SCALES:
        found = seconds(scale)
        rows += [[scale, name, f"{spent:.3f}", f"{spent / found['plain']:.3f}"] for name, spent in found.items()]
        if scale == "mnist-lite":
            aims = [Aim(name, found[name] / found["plain"], limit, most=True) for name, limit in LIMITS.items()]
    return Section(
        "The price of robustness",
        HOW,
        ("scale", "method", "seconds a round", "over plain"),
        rows,
        aims,
    )


if __name__ == "__main__":
    print(measure().markdown())
