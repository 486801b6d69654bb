"""The Python API of `rofl benchmark`: run the missing cells, and return the leaderboard."""

from pathlib import Path

from rofl.reproduce.benchmark_plan import BenchmarkPlan, make_benchmark_plan
from rofl.reproduce.cell_runner import OnProgress
from rofl.reproduce.leaderboard import Leaderboard, collect_leaderboard
from rofl.reproduce.ray_cells import run_cells_on_ray
from rofl.reproduce.run_cache import RunCache
from rofl.reproduce.run_tables import run_plan


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
