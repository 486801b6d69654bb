"""The price of robustness: a round of each method over a round of plain FedAvg."""

from statistics import median, quantiles

import torch

from benchmarks.speed.pictures import pictures, transform
from benchmarks.speed.section import Aim, Section
from rofl.engines.bench import join_global, lay_out
from rofl.engines.client import NetworkSpec, Task
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool
from rofl.methods import CoTeaching, Joint, Method, Plain, Rofl, SelfLearning

LIMITS = {"rofl": 1.08, "joint": 1.10, "coteaching": 2.05}
TURNS = 12
SCALES = {  # network, pixels of crop, samples of a client, settings
    "mnist-lite": (NetworkSpec("cnn9", (1, 28, 28), 10, 0.125, 0), 2, 200, {"batch": 50}),
    "digits": (NetworkSpec("small", (1, 8, 8), 10, 1.0, 0), 1, 72, {"batch": 20}),
}
COHORT = 1
HOW = f"""Seconds of a round with one client, on one thread of this process, every method at its full cost; 40 % wrong
labels. Rounds of all methods take turns, {TURNS} of them; medians, of the quotients within a turn too, with their
quartiles. The limits are for mnist-lite; on digits the network is so small that a handful of operations on a batch
shows."""


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


def turns(scale: str) -> list[dict[str, float]]:
    """Seconds of a round of each method, turn by turn, so that all see the same machine."""
    network, crop, samples, settings = SCALES[scale]
    rounds = {
        name: simulation(method, network, crop, samples).rounds(method.begin(network.build()), 1, TURNS + 1)
        for name, method in methods(settings).items()
    }
    return [{name: next(source).seconds for name, source in rounds.items()} for _ in range(TURNS + 1)][1:]


def measure() -> Section:
    """Both scales; the limits are for mnist-lite."""
    rows, aims = [], []
    for scale in SCALES:
        found = turns(scale)
        for name in found[0]:
            low, price, high = quantiles((turn[name] / turn["plain"] for turn in found), n=4)
            seconds = f"{median(turn[name] for turn in found):.3f}"
            rows.append([scale, name, seconds, f"{price:.3f}", f"{low:.2f} to {high:.2f}"])
            if scale == "mnist-lite" and name in LIMITS:
                aims.append(Aim(name, price, LIMITS[name], most=True))
    return Section(
        "The price of robustness",
        HOW,
        ("scale", "method", "seconds a round", "over plain", "quartiles"),
        rows,
        aims,
    )


if __name__ == "__main__":
    print(measure().markdown())
