"""Growth: many clients, large cohorts, and the time until something happens."""

import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.pictures import pictures, transform
from benchmarks.speed.section import Aim, Section
from rofl.data.parts import Drawn, sizes_of
from rofl.engines.bench import join_global, lay_out
from rofl.engines.client import NetworkSpec, Task
from rofl.engines.local import Simulation
from rofl.engines.pool import Pool
from rofl.engines.states import StateStore
from rofl.methods import Joint

POPULATIONS = (100, 10_000, 1_000_000)
COHORTS = (10, 1000)
ROUNDS = {10: 30, 1000: 4}  # the first of them starts the workers and does not count
SAMPLES, EACH = 2000, 20
HELP, FIRST_STEP = 0.3, 5.0  # seconds
HOW = f"""`data.partition = "drawn"`: every client has {EACH} of {SAMPLES} images, drawn by a seed of its own when its
turn comes. Joint Optimization with a small `mlp`, whose clients keep a state on disk; 2 workers; memory is the server's
resident set at its largest, torch included. 100 clients are all in a cohort of 1,000. Below: the time until something
happens."""


def grow(population: int, cohort: int) -> dict[str, float]:
    """Seconds of a round, and the most memory that the server took, in MB; with clients that keep a state on disk."""
    shape = (1, 8, 8)
    method, network = Joint(lr=0.03, epochs=1, batch=20), NetworkSpec("mlp", shape, 10, 0.25, 0)
    pixels, labels = pictures(shape, SAMPLES)
    parts, begun = Drawn(SAMPLES, population, EACH, seed=0), method.begin(network.build())
    pool = Pool(
        2, Task(method, network, transform(shape, 1), 0), lay_out(pixels, pixels, labels, parts), join_global(begun)
    )
    with tempfile.TemporaryDirectory() as place:
        engine = Simulation(pool, method, sizes_of(parts), min(cohort, population), 0, StateStore(Path(place)))
        seconds = []
        for report in engine.rounds(begun, 1, ROUNDS[cohort]):
            engine.states.prune()
            seconds.append(report.seconds)
    pool.close()
    return {"seconds": median(seconds[1:]), "memory": most_memory()}


def most_memory() -> float:
    """The largest resident set of this process, in MB; getrusage begins with that of the process that forked it."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def grown(population: int, cohort: int) -> dict[str, Any]:
    """The same in a process of its own, whose memory nothing else has touched."""
    call = f"import json; from benchmarks.speed.growth import grow; print(json.dumps(grow({population}, {cohort})))"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def until(command: list[str], sign: Path | None = None) -> float:
    """Seconds until a command of rofl is over, or until a sign of life has come from it."""
    started = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", "rofl", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not (sign and sign.is_file() and sign.stat().st_size):
            time.sleep(0.005)
        spent = time.perf_counter() - started
        process.kill()
    return spent


def first_round() -> float:
    """Seconds until a run of digits has a round behind it: its first step was before."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        short = ["--set", "method.epochs=1", "--set", "cohort=2", "--out", str(folder)]
        return until(["run", "digits", *short], folder / "metrics.jsonl")


def measure() -> Section:
    """All populations and cohorts, and both starts."""
    found = {key: grown(*key) for key in product(POPULATIONS, COHORTS)}
    rows = [
        [f"{population:,}", f"{min(cohort, population):,}", f"{each['seconds']:.3f}", f"{each['memory']:.0f}"]
        for (population, cohort), each in found.items()
    ]
    small, middle, large = POPULATIONS
    few, many = COHORTS
    help_seconds = median(until(["--help"]) for _ in range(7))
    first_seconds = median(first_round() for _ in range(3))
    rows += [
        ["`rofl --help`", "", f"{help_seconds:.3f}", ""],
        ["`rofl run digits`, to the end of a first short round", "", f"{first_seconds:.3f}", ""],
    ]
    ratio = {
        name: [
            found[large, cohort][name] / found[base, cohort][name] for base, cohort in ((small, few), (middle, many))
        ]
        for name in ("seconds", "memory")
    }
    aims = [
        Aim("seconds a round, a million clients over 100, cohort 10", ratio["seconds"][0], 1.1, most=True),
        Aim("seconds a round, a million clients over 10,000, cohort 1,000", ratio["seconds"][1], 1.1, most=True),
        Aim("server's memory, a million clients over 100, cohort 10", ratio["memory"][0], 1.05, most=True),
        Aim("server's memory, a million clients over 10,000, cohort 1,000", ratio["memory"][1], 1.05, most=True),
        Aim(
            "server's memory, cohort 1,000 over 10, a million clients",
            found[large, many]["memory"] / found[large, few]["memory"],
            1.05,
            most=True,
        ),
        Aim("seconds of rofl --help", help_seconds, HELP, most=True),
        Aim("seconds of a run until its first round is over", first_seconds, FIRST_STEP, most=True),
    ]
    return Section("Growth", HOW, ("clients", "cohort", "seconds a round", "server, MB"), rows, aims)


if __name__ == "__main__":
    print(measure().markdown())
