"""Compare with the alternatives: a plain loop as public code has it, and Flower's simulation on Ray.

python -m benchmarks.speed.baselines
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.speed.naive_loop import ClientData, federated_round
from benchmarks.speed.random_clients import CROP, MEAN, METHOD, SAMPLES, SEED, STD, WORKERS, samples, simulation, task
from benchmarks.speed.raw_loop import Setting, loops
from benchmarks.speed.result_table import Aim, Section
from rofl.simulation.rounds import sample_cohort

WIDTHS = {"1/8": 0.125, "1/4": 0.25}
CLIENTS, COHORT = 4, 2  # beside the plain loop
RAY_WIDTH, RAY_CLIENTS = 0.125, 100
RAY_ROUNDS = {2: 8, 5: 5, 15: 3}  # for each cohort
ROUNDS = 4  # the first warms up and does not count
WHY = """The plain loop's convolutions are ours, and more than half of its time (its network's steps alone). What there
is to gain on them is a process for each core in the place of threads, and channels last. Three times as fast as it
would be as fast as the bare loop of the first table or faster, which no round can be. Flower's simulation trains with
our own clients: only what lies between them differs, and with two clients on two cores that is little."""
PATIENCE = 900  # seconds for all that is done on Ray
NO_RAY = "Ray is not installed: pip install '.[simulation]'"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def naive_rounds(width: float) -> Iterator[float]:
    """Return the seconds of each round of the plain loop, on as many threads as torch takes."""
    data = samples(CLIENTS)
    parts = zip(data["train"].split(SAMPLES), data["labels"].split(SAMPLES), strict=True)
    clients = [ClientData(pixels, labels, MEAN, STD, CROP) for pixels, labels in parts]
    net = task(width).network.build().to(memory_format=torch.contiguous_format)
    centroids = torch.zeros(net.classes, net.feature_size)
    for index in range(1, ROUNDS + 1):
        started = time.perf_counter()
        cohort = sample_cohort([SAMPLES] * CLIENTS, COHORT, SEED, index)
        centroids, _ = federated_round(net, centroids, [clients[client] for client in cohort], METHOD, index)
        yield time.perf_counter() - started


def beside_naive(width: float) -> tuple[list[float], list[float]]:
    """Return the seconds of rounds of the plain loop and of ours, measured in turns."""
    with simulation(width, CLIENTS, COHORT) as ours:
        reports = ours.rounds(METHOD.init(task(width).network.build()), 1, ROUNDS)
        turns = [(naive, report.seconds) for naive, report in zip(naive_rounds(width), reports, strict=True)]
    naive, own = zip(*turns[1:], strict=True)
    return list(naive), list(own)


def steps_alone(width: float) -> float:
    """Return the seconds of the plain loop's forward and backward passes alone, with torch's defaults."""
    threads = torch.get_num_threads()
    setting = Setting("cnn9", task(width).network.shape, width, METHOD.batch, 1, threads, channels_last=False)
    with loops(1) as bare:
        return COHORT * SAMPLES * METHOD.epochs / median(bare.speed(setting, 2.0) for _ in range(3))


def on_ray() -> dict[str, Any]:
    """Run `ray_rounds` and return its result. It is not run as `__main__`, whose content Ray would send by value."""
    wanted = {"width": RAY_WIDTH, "clients": RAY_CLIENTS, "rounds": RAY_ROUNDS}
    call = "from benchmarks.speed.ray_rounds import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", call, json.dumps(wanted)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **QUIET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        said, log = process.communicate(timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # where it did not end by itself, Ray's agents would live on
    if process.returncode != 0:
        raise RuntimeError(f"Flower's simulation failed:\n{log[-5000:]}")
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def our_start() -> float:
    """Return the seconds until our engine has finished its first round."""
    started = time.perf_counter()
    with simulation(RAY_WIDTH, RAY_CLIENTS, min(RAY_ROUNDS)) as ours:
        ours.run_round(METHOD.init(task(RAY_WIDTH).network.build()), 1)
        return time.perf_counter() - started


def beside_ray() -> tuple[list[list[str]], list[Aim]]:
    """Return rows and aims for every cohort; both engines must give the same model."""
    if find_spec("ray") is None:
        return [[NO_RAY, "", "", "", ""]], []
    rows, aims, ray = list[list[str]](), list[Aim](), on_ray()
    for cohort, sides in zip(RAY_ROUNDS, ray["cohorts"], strict=True):
        theirs, ours = sides["theirs"], sides["ours"]
        if theirs["digest"] != ours["digest"]:
            raise RuntimeError(f"Flower's simulation and ours differ with {cohort} clients a round")
        what = f"Flower on Ray, {cohort} clients a round"
        rows.append(row(what, "1/8", theirs["seconds"][1:], ours["seconds"][1:]))
        aims.append(Aim(f"{what}, over ours", quotient(theirs["seconds"][1:], ours["seconds"][1:]), 1))
    return [*rows, row("Flower on Ray, until the first round is done", "1/8", [ray["start"]], [our_start()])], aims


def quotient(theirs: Sequence[float], ours: Sequence[float]) -> float:
    """Return the median over the turns."""
    return median(their / our for their, our in zip(theirs, ours, strict=True))


def row(what: str, width: str, theirs: Sequence[float], ours: Sequence[float]) -> list[str]:
    """Return one comparison, measured in turns."""
    return [what, width, f"{median(theirs):.2f}", f"{median(ours):.2f}", f"{quotient(theirs, ours):.2f}"]


def measure() -> Section:
    """Return both comparisons."""
    rows, aims = [], []
    for name, width in WIDTHS.items():
        naive, ours = beside_naive(width)
        rows.append(row(f"a plain loop, {COHORT} clients a round", name, naive, ours))
        rows.append(row("its network's steps alone, on all threads", name, [steps_alone(width)], [median(ours)]))
        aims.append(Aim(f"a plain loop at width {name}, over ours", quotient(naive, ours), 3))
    threads = torch.get_num_threads()
    ray_rows, ray_aims = beside_ray()
    how = (
        f"Clients of {SAMPLES} random images of 28 x 28, `cnn9`, batch {METHOD.batch}, {METHOD.epochs} local epochs, "
        "rofl at its full cost; rounds take turns, after a first one that does not count; medians, of the quotients "
        "within a turn too. Nothing is evaluated. Ours: the local "
        f"engine with {WORKERS} worker processes. The plain loop (`benchmarks/speed/naive_loop.py`) is the same "
        f"algorithm, written as public code writes it, on {threads} threads, as torch sets it up here."
    )
    if ray_aims:
        how += (
            f" Flower's simulation runs our ClientApp for cohorts out of {RAY_CLIENTS} clients, 1 CPU each, "
            f"{WORKERS} CPUs; it ends with the same weights, bit by bit."
        )
    return Section(
        title="Against what a user would pick instead",
        how=how,
        header=("against", "width", "theirs, s a round", "ours, s a round", "theirs / ours"),
        rows=[*rows, *ray_rows],
        aims=[*aims, *ray_aims],
        why=WHY,
    )


if __name__ == "__main__":
    print(measure().markdown())
