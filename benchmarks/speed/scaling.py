"""Measure scaling: many clients, large cohorts, and the time to the first output and the first round."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path
from statistics import median

from benchmarks.speed.result_table import Aim, Section
from benchmarks.speed.synthetic_images import synthetic_images, transform
from rofl.data.client_dataset import SampledClients, client_sizes
from rofl.methods import Joint
from rofl.simulation.client import ClientConfig, ClientStateStore
from rofl.simulation.engine import Simulation
from rofl.simulation.executor import flatten_state, shared_inputs
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.rounds import RoundResult
from rofl.simulation.worker_pool import WorkerPool

POPULATIONS = (100, 10_000, 1_000_000)
COHORTS = (10, 1000)
TURNS = {10: 40, 1000: 3}  # rounds of every population
SAMPLES, EACH = 2000, 20
HELP, FIRST_STEP = 0.3, 5.0  # seconds
HOW = f"""`data.partition = "sampled"`: every client has {EACH} of {SAMPLES} images, drawn by a seed of its own when its
turn comes. Joint Optimization with a small `mlp`, whose clients keep a state on disk; 2 workers. Rounds of the three
populations take turns; medians, of the quotients within a turn too. Memory is the server's resident set at its largest,
torch included. 100 clients are all in a cohort of 1,000. Below: the time until something happens."""


@contextmanager
def rounds(population: int, cohort: int, count: int) -> Iterator[Iterator[float]]:
    """Yield the seconds of rounds with client states on disk; the first, which starts the workers, is left out."""
    shape = (1, 8, 8)
    method, network = Joint(lr=0.03, epochs=1, batch=20), NetworkSpec("mlp", shape, 10, 0.25, 0)
    pixels, labels = synthetic_images(shape, SAMPLES)
    parts, begun = SampledClients(SAMPLES, population, EACH, seed=0), method.init(network.build())
    pool = WorkerPool(
        2,
        ClientConfig(method, network, transform(shape, 1), 0),
        shared_inputs(pixels, pixels, labels, parts),
        flatten_state(begun),
    )
    try:
        with tempfile.TemporaryDirectory() as place:
            states = ClientStateStore(Path(place))
            engine = Simulation(pool, method, client_sizes(parts), min(cohort, population), 0, states)
            seconds = pruned(engine.rounds(begun, 1, count + 1), states)
            next(seconds)
            yield seconds
    finally:
        pool.close()


def pruned(reports: Iterator[RoundResult], states: ClientStateStore) -> Iterator[float]:
    """Yield the seconds of each round; states that no later round needs are removed, as after a checkpoint."""
    for report in reports:
        states.prune()
        yield report.seconds


def in_turns(cohort: int) -> list[dict[int, float]]:
    """Return the seconds of a round of each population, measured in turns under the same load."""
    with ExitStack() as stack:
        sources = {each: stack.enter_context(rounds(each, cohort, TURNS[cohort])) for each in POPULATIONS}
        return [{each: next(source) for each, source in sources.items()} for _ in range(TURNS[cohort])]


def most_memory(population: int, cohort: int) -> float:
    """Return the server's peak memory in two rounds, in MB, measured in a new process."""
    call = f"from benchmarks.speed.scaling import print_memory; print_memory({population}, {cohort})"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def print_memory(population: int, cohort: int) -> None:
    """Print the largest resident set of this process after two rounds; getrusage would include the parent's."""
    with rounds(population, cohort, count=1) as seconds:
        next(seconds)
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)


def until(command: list[str], sign: Path | None = None) -> float:
    """Return the seconds until a command of rofl ends, or until a file that it writes is there."""
    started = time.perf_counter()
    with subprocess.Popen(
        [Path(sys.executable).with_name("rofl"), *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        while process.poll() is None and not (sign and sign.is_file() and sign.stat().st_size):
            time.sleep(0.005)
        spent = time.perf_counter() - started
        process.kill()
    return spent


def first_round() -> float:
    """Return the seconds until a run of digits has finished its first round."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        short = ["--set", "method.epochs=1", "--set", "cohort=2", "--out", str(folder)]
        return until(["run", "digits", *short], folder / "metrics.jsonl")


def measure() -> Section:
    """Return the section of all populations and cohorts, and of both starts."""
    turns = {cohort: in_turns(cohort) for cohort in COHORTS}
    memory = {key: most_memory(*key) for key in product(POPULATIONS, COHORTS)}
    rows = [
        [
            f"{population:,}",
            f"{min(cohort, population):,}",
            f"{median(turn[population] for turn in turns[cohort]):.3f}",
            f"{memory[population, cohort]:.0f}",
        ]
        for population, cohort in memory
    ]
    small, middle, large = POPULATIONS
    few, many = COHORTS
    help_seconds = median(until(["--help"]) for _ in range(7))
    first_seconds = median(first_round() for _ in range(3))
    rows += [
        ["`rofl --help`", "", f"{help_seconds:.3f}", ""],
        ["`rofl run digits`, to the end of a first short round", "", f"{first_seconds:.3f}", ""],
    ]
    aims = list[Aim]()
    for cohort, base in ((few, small), (many, middle)):
        times = median(turn[large] / turn[base] for turn in turns[cohort])
        what = f"a million clients over {base:,}, cohort {cohort:,}"
        aims += [
            Aim(f"seconds a round, {what}", times, 1.1, most=True),
            Aim(f"server's memory, {what}", memory[large, cohort] / memory[base, cohort], 1.05, most=True),
        ]
    wider = memory[large, many] / memory[large, few]
    aims += [
        Aim("server's memory, cohort 1,000 over 10, a million clients", wider, 1.05, most=True),
        Aim("seconds of rofl --help", help_seconds, HELP, most=True),
        Aim("seconds of a run until its first round is over", first_seconds, FIRST_STEP, most=True),
    ]
    return Section("Growth", HOW, ("clients", "cohort", "seconds a round", "server, MB"), rows, aims)


if __name__ == "__main__":
    print(measure().markdown())
