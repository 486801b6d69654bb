"""The results of tables: our value of each cell, next to the paper's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from rofl.reproduce.client_divergence import read_divergence
from rofl.reproduce.paper_table import Measure, PaperTable, Scale, TableCell
from rofl.reproduce.plan import Plan
from rofl.reproduce.run_cache import RunCache
from rofl.training.run_dir import RunDir

MeasureRun = Callable[[TableCell, RunDir], float | None]
_DIGITS: dict[Measure, int] = {"accuracy": 1, "precision": 3, "recall": 3, "seconds": 2}


@dataclass(frozen=True)
class CellResult:
    """The values of one cell.

    Attributes:
        cell: The cell, with the paper's number.
        values: One value per finished seed.
        folders: The run folders of the finished seeds.
        problem: The reason why a seed could not run; empty if all could.
    """

    cell: TableCell
    values: tuple[float, ...]
    folders: tuple[Path, ...] = ()
    problem: str = ""

    @property
    def mean(self) -> float | None:
        """The mean over seeds; None if no seed is finished."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The sample standard deviation over seeds; None for fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """The text `ours ± spread / paper`, without unknown parts."""
        digits = _DIGITS.get(self.cell.measure, 3)
        ours = "-" if self.mean is None else f"{self.mean:.{digits}f}"
        if self.spread is not None:
            ours += f" ± {self.spread:.{digits}f}"
        return ours if self.cell.paper is None else f"{ours} / {self.cell.paper:.{digits if digits != 2 else 1}f}"


@dataclass(frozen=True)
class TableResult:
    """A table with the results of its chosen cells."""

    table: PaperTable
    scale: Scale
    cells: tuple[CellResult, ...]

    def cell(self, row: str, column: str) -> CellResult | None:
        """Return the result in a row and a column, or None if the table has no cell there."""
        return next((one for one in self.cells if (one.cell.row, one.cell.column) == (row, column)), None)

    @property
    def rows(self) -> list[str]:
        """The rows that hold a cell."""
        return list(dict.fromkeys(one.cell.row for one in self.cells))

    @property
    def columns(self) -> list[str]:
        """The columns that hold a cell."""
        return list(dict.fromkeys(one.cell.column for one in self.cells))

    @property
    def seconds(self) -> float:
        """Training time of all cells; a run shared by several cells counts once."""
        folders = {folder for one in self.cells for folder in one.folders}
        return sum(RunDir(folder).read_summary().seconds for folder in folders)

    @property
    def problems(self) -> list[str]:
        """Why cells could not run, each sentence once."""
        return list(dict.fromkeys(one.problem for one in self.cells if one.problem))


def collect_results(
    plan: Plan,
    table: PaperTable,
    cells: Sequence[TableCell],
    cache: RunCache,
    problems: Mapping[Path, str],
    measure: MeasureRun | None = None,
) -> TableResult:
    """Read the finished runs of a table's cells.

    Args:
        plan: The plan that they ran for, with its scale and seeds.
        table: The table.
        cells: The cells of the table in the plan.
        cache: Where the runs are kept.
        problems: Run folder -> why it could not run.
        measure: Returns the value of a cell's finished run; by default, the cell's `measure`.

    Returns:
        The results, without cells that the scale is too small for.
    """
    results = []
    for cell in cells:
        run_dirs = [cache.find(experiment) for experiment in plan.cell_experiments(table, cell)]
        if not run_dirs:
            continue
        finished = [run_dir for run_dir in run_dirs if run_dir.is_finished()]
        measured = [(measure or _measure)(cell, run_dir) for run_dir in finished]
        values = tuple(value for value in measured if value is not None)
        problem = next((problems[run_dir.path] for run_dir in run_dirs if run_dir.path in problems), "")
        results.append(CellResult(cell, values, tuple(run_dir.path for run_dir in finished), problem))
    return TableResult(table, plan.scale, tuple(results))


def _measure(cell: TableCell, run_dir: RunDir) -> float | None:
    measure, summary = cell.measure, run_dir.read_summary()
    if measure == "accuracy":
        return summary.test_accuracy
    if measure == "seconds":
        return _median_seconds(run_dir)
    if measure == "precision":
        return summary.precision
    if measure == "recall":
        return summary.recall
    return read_divergence(run_dir)[measure]


def _median_seconds(run_dir: RunDir) -> float:
    """Return the median duration of a round; the first is left out, since worker processes start in it."""
    seconds = [record.seconds for record in run_dir.read_history()]
    return float(median(seconds[1:] or seconds))
