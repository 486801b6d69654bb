"""Compare whole rounds of rofl with a bare training loop of the same network, which is the machine's limit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles

import torch

from benchmarks.speed.raw_loop import Loops, Setting, loops
from benchmarks.speed.result_table import Aim, Section, quotients
from benchmarks.speed.synthetic_images import synthetic_images, transform
from rofl.methods import Rofl
from rofl.simulation.client import ClientConfig
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.worker_pool import WorkerPool

CORES = 2
HOW = f"""Images per second of whole rounds of rofl (crop, pseudo-labels and L_cen on, 40 % wrong labels, 5 epochs,
{CORES} workers, update and aggregation), over those of a bare PyTorch loop of the same network on one random batch, in
the fastest of four ways (processes x threads, memory layout), with glibc's own handling of memory. A round and the
loop take turns of the same length, and a round is held against the loop just before and just after it; medians, of
these quotients too, with their quartiles. At 1/4 and 1/8 pseudo-labels begin with the fourth round, when there is
something to go by, and the rounds up to it do not count; with 50 images a client does not gain by waiting."""
WHY = """The loop does without what a round has to do. A pseudo-label (Eq. 8) is a forward pass, a third of a step and
so a fifteenth of a sample's five epochs where convolutions are nearly all; clients of 50 images have one for all of
them, and no round of theirs can be much above 0.94. Crops, masks, centroids and losses are another 1 % at 1/4 and 3 %
at 1/8 (last table), and a round waits for the slower of its workers, which the loop's processes do not. Where quartiles
lie far apart the machine's speed changed between a round and its loop; docs/results.md has the spread over several
measurements."""


@dataclass(frozen=True)
class Case:
    """A network, the images that it is trained with, and the aim."""

    name: str
    model: str
    shape: tuple[int, int, int]
    width: float
    samples: int  # of a client: as many as make rounds of some seconds
    cohort: int
    limit: float
    turns: int = 12
    learnt: int = 4  # the first round with pseudo-labels; those up to it do not count
    batch: int = 50
    crop: int = 2


MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
CASES = (
    Case("cnn9, MNIST", "cnn9", MNIST, 1.0, 50, 2, 0.95, turns=3, learnt=1),
    Case("cnn9, CIFAR-10", "cnn9", CIFAR, 1.0, 50, 2, 0.95, turns=3, learnt=1, crop=4),
    Case("cnn9 at 1/4, MNIST", "cnn9", MNIST, 0.25, 150, 4, 0.95, turns=6),
    Case("cnn9 at 1/4, CIFAR-10", "cnn9", CIFAR, 0.25, 150, 4, 0.95, turns=6, crop=4),
    Case("cnn9 at 1/8, MNIST", "cnn9", MNIST, 0.125, 150, 4, 0.90),
    Case("cnn9 at 1/8, CIFAR-10", "cnn9", CIFAR, 0.125, 150, 4, 0.90, crop=4),
    Case("small, digits", "small", (1, 8, 8), 1.0, 72, 10, 0.6, learnt=1, batch=20, crop=1),
)


@contextmanager
def rounds(case: Case) -> Iterator[Iterator[float]]:
    """Yield the seconds of each round of rofl, after the workers have started and the model has learnt something."""
    method = Rofl(tau=0.4, t_pl=case.learnt, cen_start=0.0, cen_rise=0.0, batch=case.batch)
    network = NetworkSpec(case.model, case.shape, 10, case.width, 0)
    pixels, labels = synthetic_images(case.shape, case.cohort * case.samples)
    data = shared_inputs(pixels, pixels[:10], labels, list(torch.arange(len(pixels)).split(case.samples)))
    begun = method.init(network.build())
    pool = WorkerPool(
        CORES, ClientConfig(method, network, transform(case.shape, case.crop), 0), data, flatten_state(begun)
    )
    try:
        engine = Simulation(pool, method, [case.samples] * case.cohort, case.cohort, seed=0)
        reports = engine.rounds(begun, 1, case.learnt + case.turns)
        for _ in range(case.learnt):
            next(reports)
        yield (report.seconds for report in reports)
    finally:
        pool.close()


def ways(case: Case) -> list[Setting]:
    """Return all ways to use the cores: processes or threads, channels last or first."""
    return [
        Setting(case.model, case.shape, case.width, case.batch, processes, CORES // processes, last)
        for processes in (CORES, 1)
        for last in (True, False)
    ]


def compare(bare: Loops, case: Case) -> tuple[list[float], list[float], str]:
    """Return images per second of our rounds, of the bare loop before and after each, and how the loop was run."""
    best = max(ways(case), key=lambda setting: bare.speed(setting, 0.7))
    shown = case.cohort * case.samples * Rofl().epochs  # images of a round
    with rounds(case) as turns:
        ours, theirs = list[float](), [bare.speed(best, 1.0)]
        for seconds in turns:
            ours.append(shown / seconds)
            theirs.append(bare.speed(best, seconds))
    return ours, theirs, str(best)


def measure() -> Section:
    """Return the section of all cases."""
    rows, aims = [], []
    with loops(CORES) as bare:
        for case in CASES:
            ours, theirs, how = compare(bare, case)
            low, share, high = quantiles(quotients(ours, theirs), n=4)
            speeds = f"{median(theirs):.0f}", how, f"{median(ours):.0f}"
            rows.append([case.name, *speeds, f"{share:.3f}", f"{low:.2f} to {high:.2f}"])
            aims.append(Aim(case.name, share, case.limit))
    return Section(
        "Against the machine's limit",
        HOW,
        ("network", "bare loop, images/s", "run as", "rofl, images/s", "share", "quartiles"),
        rows,
        aims,
        WHY,
    )


if __name__ == "__main__":
    print(measure().markdown())
