"""Measure the cost of robustness: a round of each method over a round of FedAvg."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles

import torch

from benchmarks.speed.result_table import Aim, Section, quotients
from benchmarks.speed.synthetic_images import synthetic_images, transform
from rofl.methods import CoTeaching, FedAvg, Joint, Method, Rofl, SelfLearning
from rofl.simulation.client import ClientConfig
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.worker_pool import WorkerPool

LIMITS = {"rofl": 1.08, "joint": 1.10, "coteaching": 2.05}
SCALES = {  # network, pixels of crop, samples of a client, settings, turns
    "mnist-lite": (NetworkSpec("cnn9", (1, 28, 28), 10, 0.125, 0), 2, 200, {"batch": 50}, 12),
    "digits": (NetworkSpec("small", (1, 8, 8), 10, 1.0, 0), 1, 72, {"batch": 20}, 20),
}
HOW = """Seconds of a round with one client, on one core, every method at its full cost; 40 % wrong
labels. Rounds of all methods take turns, each held against the rounds of plain just before and after; medians, of
these quotients too, with their quartiles. The limits are for mnist-lite; on digits the network is so small that a
handful of operations on a batch shows."""

WHY = """rofl: forward passes for pseudo-labels (Eq. 8) are up to 5 % of five epochs by themselves; some sixty
operations on a batch's losses, masks and centroids, forwards and backwards, are 1 to 3 % of a step of 40 ms (last
table). Co-teaching: two networks' steps are twice one's; both keep their activations at once, and a step picks small
losses twice."""


def methods(settings: dict[str, int]) -> dict[str, Method]:
    """Return all methods, each at its full cost from the first round on."""
    return {
        "plain": FedAvg(lr=0.1, **settings),
        "rofl": Rofl(lr=0.1, tau=0.4, t_pl=1, cen_start=0.0, cen_rise=0.0, **settings),
        "joint": Joint(lr=0.03, start=1, **settings),
        "coteaching": CoTeaching(lr=0.1, tau=0.4, **settings),
        "selflearning": SelfLearning(start=1, **settings),
    }


@contextmanager
def rounds(method: Method, network: NetworkSpec, crop: int, samples: int, count: int) -> Iterator[Iterator[float]]:
    """Yield an iterator of the seconds of a client's rounds in its own worker, without the first, which starts it."""
    pixels, labels = synthetic_images(network.shape, samples)
    begun = method.init(network.build())
    task = ClientConfig(method, network, transform(network.shape, crop), seed=0)
    pool = WorkerPool(
        1, task, shared_inputs(pixels, pixels[:10], labels, [torch.arange(samples)]), flatten_state(begun)
    )
    try:
        reports = Simulation(pool, method, [samples], 1, seed=0).rounds(begun, 1, count + 1)
        next(reports)
        yield (report.seconds for report in reports)
    finally:
        pool.close()


def turns(scale: str) -> dict[str, list[float]]:
    """Return the seconds of each method's rounds, measured in turns under the same load; FedAvg is first and last."""
    network, crop, samples, settings, count = SCALES[scale]
    with ExitStack() as stack:
        sources = {
            name: stack.enter_context(rounds(method, network, crop, samples, count + 1))
            for name, method in methods(settings).items()
        }
        found: dict[str, list[float]] = {name: [] for name in sources}
        for name, source in [*sources.items()] * count:
            found[name].append(next(source))
        return {**found, "plain": [*found["plain"], next(sources["plain"])]}


def measure() -> Section:
    """Return the section of both scales; the limits are for mnist-lite."""
    rows, aims = [], []
    for scale in SCALES:
        found = turns(scale)
        plain = found.pop("plain")
        rows.append([scale, "plain", f"{median(plain):.3f}", "1", ""])
        for name, seconds in found.items():
            low, price, high = quantiles(quotients(seconds, plain), n=4)
            rows.append([scale, name, f"{median(seconds):.3f}", f"{price:.3f}", f"{low:.2f} to {high:.2f}"])
            if scale == "mnist-lite" and name in LIMITS:
                aims.append(Aim(name, price, LIMITS[name], most=True))
    return Section(
        "The price of robustness",
        HOW,
        ("scale", "method", "seconds a round", "over plain", "quartiles"),
        rows,
        aims,
        WHY,
    )


if __name__ == "__main__":
    print(measure().markdown())
