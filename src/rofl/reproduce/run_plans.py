"""The Python API of `rofl reproduce` and `rofl benchmark`: the cost of a plan, and the runs of its unfinished cells."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.reproduce.benchmark_plan import BenchmarkPlan, make_benchmark_plan
from rofl.reproduce.cell_runner import CellProgress, OnProgress, run_cells
from rofl.reproduce.client_divergence import write_divergence
from rofl.reproduce.leaderboard import Leaderboard, collect_leaderboard
from rofl.reproduce.plan import Plan, make_plan
from rofl.reproduce.ray_cells import run_cells_on_ray
from rofl.reproduce.results import TableResult, collect_results
from rofl.reproduce.run_cache import RunCache
from rofl.simulation.worker_pool import cores
from rofl.training.time_estimate import PUBLISHED
from rofl.training.time_estimate import core_seconds as run_core_seconds


def reproduce(
    plan: Plan | str, *, jobs: int | None = None, data_dir: Path | None = None, on_progress: OnProgress | None = None
) -> list[TableResult]:
    """Run the unfinished cells of a plan, and return the results of all its tables.

    Cells run in parallel processes. Tables that measure time come last, one cell at a time, without other load. A cell
    that cannot run does not stop the others; its result has the reason.

    Args:
        plan: What to run, from `make_plan`; a table's name stands for `make_plan(name)`, at scale "tiny".
        jobs: The number of parallel cells; if None, one per core, and one at scale "paper".
        data_dir: The folder of published data sets; $ROFL_DATA if None.
        on_progress: Called about twice a second while cells run.

    Returns:
        One result per table of the plan, in its order.

    Raises:
        UserError: Another process reproduces into the same folder.
        KeyboardInterrupt: On Ctrl-C; finished cells are kept, and the same call continues.
    """
    plan = make_plan(plan) if isinstance(plan, str) else plan
    cache = RunCache(plan.cells_dir)
    problems = run_plan(plan, cache, jobs, data_dir, on_progress)
    _measure_divergence(plan, cache, data_dir)
    return [collect_results(plan, table, cells, cache, problems) for table, cells in plan.chosen]


def run_plan(
    plan: Plan, cache: RunCache, jobs: int | None, data_dir: Path | None, on_progress: OnProgress | None
) -> dict[Path, str]:
    """Run the unfinished cells of a plan; those that measure time come last, one at a time.

    Args:
        plan: What to run.
        cache: Where the run directories are kept.
        jobs: The number of parallel cells; if None, one per core, and one at scale "paper".
        data_dir: The folder of published data sets; $ROFL_DATA if None.
        on_progress: Called about twice a second while cells run.

    Returns:
        Run folder -> the reason why it could not run; empty if everything ran.
    """
    jobs = jobs or (1 if plan.scale == "paper" else cores())
    total = sum(experiment.rounds for experiment in plan.experiments())
    rounds = 0
    problems: dict[Path, str] = {}
    for timed in (False, True):
        experiments = plan.experiments(timed)
        side_by_side = 1 if timed else jobs
        if not all(map(cache.is_finished, experiments)):
            problems |= run_cells(
                experiments,
                cache,
                side_by_side,
                workers=plan.workers(side_by_side),
                data_dir=data_dir,
                on_progress=None if on_progress is None else partial(_report_total, on_progress, rounds, total),
            )
        rounds += sum(experiment.rounds for experiment in experiments)
    return problems


def _report_total(on_progress: OnProgress, rounds_before: int, total: int, progress: CellProgress) -> None:
    """Report the progress of one group of cells as that of the whole plan."""
    on_progress(CellProgress(rounds_before + progress.rounds, total, progress.running))


def _measure_divergence(plan: Plan, cache: RunCache, data_dir: Path | None) -> None:
    """Measure the divergence of clients' models, for the finished cells that show it (Figure 4)."""
    for table, cells in plan.chosen:
        if any(cell.is_divergence for cell in cells):
            for cell in cells:
                for experiment in plan.cell_experiments(table, cell):
                    run_dir = cache.find(experiment)
                    if run_dir.is_finished():
                        write_divergence(run_dir, data_dir)


def benchmark(
    plan: BenchmarkPlan | str = "all",
    *,
    jobs: int | None = None,
    on: str = "",
    data_dir: Path | None = None,
    on_progress: OnProgress | None = None,
) -> Leaderboard:
    """Run the unfinished cells of a benchmark, and return the leaderboard.

    Args:
        plan: What to run, from `make_benchmark_plan`; a name stands for `make_benchmark_plan(name)`, at scale "tiny".
        jobs: The number of parallel cells; by default one per core, and one at scale "paper".
        on: A Ray cluster to run on: "ray" for this machine or $RAY_ADDRESS, or "ray://HOST:PORT". Anyone
            who can reach a Ray cluster can run code on it, and its nodes can run code here: Ray sends pickled objects.
        data_dir: Where the data sets lie, on the cluster's nodes if `on` names one; $ROFL_DATA if None.
        on_progress: Called about twice a second while cells run.

    Returns:
        The leaderboard, with the reason for each cell that could not run.

    Raises:
        UserError: Another process runs cells in the same folder, or Ray cannot be reached.
        KeyboardInterrupt: On Ctrl-C; finished cells are kept, and the same call continues.
    """
    plan = make_benchmark_plan(plan) if isinstance(plan, str) else plan
    cache = RunCache(plan.cells_dir)
    if on:
        problems = run_cells_on_ray(plan.experiments(), cache, on, data_dir, on_progress)
    else:
        problems = run_plan(plan, cache, jobs, data_dir, on_progress)
    return collect_leaderboard(plan, cache, problems)


@dataclass(frozen=True)
class PlanCost:
    """The estimated cost of a plan on this machine.

    Attributes:
        runs: The number of runs; cells that show different measures of one run count once.
        finished: The number of finished runs.
        core_seconds: Seconds that the other runs will take on one core, accurate to within a factor of about 1.5.
    """

    runs: int
    finished: int
    core_seconds: int


def plan_cost(plan: Plan) -> PlanCost:
    """Return the cost of a plan on this machine, from a timed training step of each method and network."""
    runs = plan.experiments()
    finished = RunCache(plan.cells_dir)
    missing = [experiment for experiment in runs if not finished.is_finished(experiment)]
    return PlanCost(len(runs), len(runs) - len(missing), round(core_seconds(missing)))


def core_seconds(experiments: Iterable[Experiment]) -> float:
    """Return the seconds that experiments will take on one core, accurate to within a factor of about 1.5."""
    return sum(run_core_seconds(experiment, PUBLISHED[experiment.data.name]) for experiment in experiments)
