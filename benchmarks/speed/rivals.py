"""Against what a user would pick instead: a plain loop as public code has it, and Flower's simulation on Ray.

python -m benchmarks.speed.rivals
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.bare import Setting, loops
from benchmarks.speed.naive_loop import ClientData, federated_round
from benchmarks.speed.random_clients import CROP, MEAN, METHOD, SAMPLES, SEED, STD, WORKERS, samples, simulation, task
from benchmarks.speed.section import Aim, Section
from rofl.core.tensors import digest
from rofl.engines.client import one_thread
from rofl.engines.rounds import choose_cohort

WIDTHS = {"1/8": 0.125, "1/4": 0.25}
CLIENTS, COHORT = 4, 2  # beside the plain loop
RAY_WIDTH, RAY_CLIENTS = 0.125, 100
RAY_ROUNDS = {2: 12, 5: 6, 15: 4}  # for each cohort
ROUNDS = 4  # the first warms up and does not count
WHY = """The plain loop's convolutions are ours, and more than half of its time (its network's steps alone). What there
is to gain on them is a process for each core in the place of threads, and channels last. At 1/4 three times as fast
would be faster than the bare loop of the first table, at 1/8 as fast. Flower's simulation trains with our own clients:
only what lies between them differs, and with two clients on two cores that is little."""
PATIENCE = 900  # seconds for all that is done on Ray
NO_RAY = "Ray is not installed: pip install '.[simulation]'"
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}


def naive_rounds(width: float, threads: Callable[[], AbstractContextManager[None]]) -> Iterator[float]:
    """Seconds of each round of the plain loop."""
    data = samples(CLIENTS)
    parts = zip(data["train"].split(SAMPLES), data["labels"].split(SAMPLES), strict=True)
    clients = [ClientData(pixels, labels, MEAN, STD, CROP) for pixels, labels in parts]
    net = task(width).network.build().to(memory_format=torch.contiguous_format)
    centroids = torch.zeros(net.classes, net.feature_size)
    for index in range(1, ROUNDS + 1):
        started = time.perf_counter()
        cohort = choose_cohort([SAMPLES] * CLIENTS, COHORT, SEED, index)
        with threads():
            centroids, _ = federated_round(net, centroids, [clients[client] for client in cohort], METHOD, index)
        yield time.perf_counter() - started


def beside_naive(width: float) -> tuple[float, float, float]:
    """Seconds of a round: the plain loop as torch sets it up, on one thread, and ours.

    Rounds alternate, so that all see the same machine.
    """
    with simulation(width, CLIENTS, COHORT) as ours:
        reports = ours.rounds(METHOD.begin(task(width).network.build()), 1, ROUNDS)
        pooled = (report.seconds for report in reports)
        rounds = list(zip(naive_rounds(width, nullcontext), naive_rounds(width, one_thread), pooled, strict=True))
    default, single, own = (min(seconds) for seconds in zip(*rounds[1:], strict=True))
    return default, single, own


def steps_alone(width: float) -> float:
    """Seconds that the plain loop's forward and backward passes take, as torch sets them up: nothing else is left."""
    threads = torch.get_num_threads()
    setting = Setting("cnn9", task(width).network.shape, width, METHOD.batch, 1, threads, channels_last=False)
    with loops(1) as bare:
        return COHORT * SAMPLES * METHOD.epochs / max(bare.speed(setting, 2.0) for _ in range(4))


def on_ray() -> dict[str, Any]:
    """What `ray_rounds` writes. It is not run as `__main__`, whose content Ray would send by value."""
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


def on_pool(cohort: int) -> dict[str, Any]:
    """The same rounds by our engine."""
    started = time.perf_counter()
    with simulation(RAY_WIDTH, RAY_CLIENTS, cohort) as ours:
        reports = list(ours.rounds(METHOD.begin(task(RAY_WIDTH).network.build()), 1, RAY_ROUNDS[cohort]))
    seconds = [report.seconds for report in reports]
    start = time.perf_counter() - started - sum(seconds[1:])
    return {"seconds": seconds, "digest": digest(reports[-1].glob.model, reports[-1].glob.extra), "start": start}


def beside_ray() -> tuple[list[list[str]], list[Aim]]:
    """Rows and aims for every cohort; both engines have to come to the very same model."""
    if find_spec("ray") is None:
        return [[NO_RAY, "", "", "", ""]], []
    rows, aims = [], []
    ray, starts = on_ray(), []
    for cohort, theirs in zip(RAY_ROUNDS, ray["cohorts"], strict=True):
        ours = on_pool(cohort)
        if theirs["digest"] != ours["digest"]:
            raise RuntimeError(f"Flower's simulation and ours differ with {cohort} clients a round")
        starts.append(ours["start"])
        what = f"Flower on Ray, {cohort} clients a round"
        fastest, own = min(theirs["seconds"][1:]), min(ours["seconds"][1:])
        rows.append(row(what, "1/8", fastest, own))
        aims.append(Aim(f"{what}, over ours", fastest / own, 1))
    return [*rows, row("Flower on Ray, until the first round is done", "1/8", ray["start"], starts[0])], aims


def row(what: str, width: str, theirs: float, ours: float) -> list[str]:
    """One comparison."""
    return [what, width, f"{theirs:.2f}", f"{ours:.2f}", f"{theirs / ours:.2f}"]


def measure() -> Section:
    """Both comparisons."""
    rows, aims = [], []
    for name, width in WIDTHS.items():
        naive, single, ours = beside_naive(width)
        rows.append(row(f"a plain loop, {COHORT} clients a round", name, naive, ours))
        rows.append(row("the same on one thread", name, single, ours))
        rows.append(row("its network's steps alone, on all threads", name, steps_alone(width), ours))
        aims.append(Aim(f"a plain loop at width {name}, over ours", naive / ours, 3))
    threads = torch.get_num_threads()
    ray_rows, ray_aims = beside_ray()
    how = (
        f"Clients of {SAMPLES} random images of 28 x 28, `cnn9`, batch {METHOD.batch}, {METHOD.epochs} local epochs, "
        "rofl at its full cost; each side's fastest round after a first one, without evaluation. Ours: the local "
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
