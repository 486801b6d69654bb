"""The plan of a benchmark: methods, settings and seeds, all with the same number of gradient steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.errors import UserError, unknown
from rofl.reproduce.benchmark_tables import benchmark_rows, benchmark_settings, benchmark_table
from rofl.reproduce.equal_budget import with_equal_steps
from rofl.reproduce.paper_table import PaperTable, Scale, TableCell
from rofl.reproduce.plan import Plan
from rofl.reproduce.scales import cell_experiment
from rofl.simulation.worker_pool import default_workers

DATASETS = ("cifar10", "mnist")  # of scales above tiny, which has the embedded digits
SEEDS: Mapping[Scale, int] = {"tiny": 5, "lite": 3, "medium": 1, "paper": 1}


@dataclass(frozen=True)
class BenchmarkPlan(Plan):
    """A plan whose cells all have the same number of gradient steps.

    Attributes:
        runs: The experiments of each cell by its row and column, one per seed.
    """

    runs: Mapping[tuple[str, str], Sequence[Experiment]] = field(default_factory=dict)

    @property
    def table(self) -> PaperTable:
        """The benchmark as a table: methods in rows, settings in columns."""
        return self.chosen[0][0]

    def workers(self, jobs: int) -> int:
        """Return 0, so that timings do not depend on the number of parallel cells; at scale "paper" one per core."""
        return default_workers() if self.scale == "paper" else 0

    def cell_experiments(self, table: PaperTable, cell: TableCell) -> Sequence[Experiment]:
        """Return the experiments of a cell, one per seed."""
        return self.runs[cell.row, cell.column]

    def experiments(self, timed: bool | None = None) -> list[Experiment]:
        """Return all experiments, seed by seed, and within a setting method by method.

        A benchmark that is stopped then has complete seeds, and other load on the machine affects all methods alike.

        Args:
            timed: True returns none, since no cell must run alone.
        """
        if timed:
            return []
        places = [(row, column) for column in self.table.columns for row in self.table.rows]
        return [self.runs[place][seed] for seed in range(self.seeds) for place in places]


def make_benchmark_plan(
    name: str = "all",
    scale: Scale = "tiny",
    data: str = "",
    cells: Iterable[str] = (),
    seeds: int = 0,
    out: Path | str = Path("runs/benchmark"),
) -> BenchmarkPlan:
    """Return the plan of a benchmark.

    Args:
        name: A key of `rofl.reproduce.benchmark_tables.BENCHMARKS`.
        scale: "tiny" (the embedded digits), "lite" (real images in minutes), "medium" (in hours) or "paper" (the
            paper's network and rounds).
        data: One of `DATASETS`; "cifar10" if empty. At scale "tiny" always the digits.
        cells: Names of methods and of settings; only these are run, and all methods or all settings if none is
            named. Methods of other packages, such as "package.module:Class", are added.
        seeds: Runs of each cell, with seeds 0, 1, ...; if 0, as many as `SEEDS` has for the scale.
        out: The folder of all scales; the plan's own is `<out>/<scale>`.

    Raises:
        UserError: A name is unknown.
    """
    if scale == "tiny" and data not in ("", "digits"):
        raise UserError(f"The scale tiny is on the embedded digits, not on {data}.", "--scale lite")
    if scale != "tiny" and data and data not in DATASETS:
        raise unknown("data set of benchmarks", data, DATASETS)
    data = "mnist" if scale == "tiny" else data or DATASETS[0]  # the scale tiny is the same for all data sets
    known, columns = benchmark_rows(), benchmark_settings(name, data)
    names = list(dict.fromkeys(cells))
    further = [word for word in names if ":" in word]
    for word in names:
        if word not in (*known, *columns, *further):
            raise unknown(f"method or setting of the benchmark {name}", word, [*known, *columns])
    rows = [row for row in known if row in names] or known
    settings = {key: value for key, value in columns.items() if key in names} or columns
    table = benchmark_table(name, data, [*rows, *further], settings)
    seeds = seeds or SEEDS[scale]
    runs = {(cell.row, cell.column): _cell_runs(table, cell, scale, seeds) for cell in table.cells}
    title = name if scale == "tiny" else f"{name}-{data}"
    return BenchmarkPlan(title, [(table, list(table.cells))], scale, seeds, Path(out) / scale, runs)


def _cell_runs(table: PaperTable, cell: TableCell, scale: Scale, seeds: int) -> list[Experiment]:
    runs = [cell_experiment(table, cell, scale, seed) for seed in range(seeds)]
    return [with_equal_steps(run) for run in runs if run is not None]
