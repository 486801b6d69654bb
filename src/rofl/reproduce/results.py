"""What came out of a grid, beside what the paper found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev

from rofl.reproduce.client_divergence import read_divergence
from rofl.reproduce.paper_table import Measure, PaperTable, Scale, TableCell
from rofl.reproduce.run_cache import RunCache
from rofl.reproduce.scales import cell_experiment
from rofl.training.run_dir import RunDir

_DIGITS: dict[Measure, int] = {"accuracy": 1, "precision": 3, "recall": 3, "seconds": 2}


@dataclass(frozen=True)
class CellResult:
    """One cell's values, one per finished seed."""

    cell: TableCell
    values: tuple[float, ...]
    folders: tuple[Path, ...] = ()
    problem: str = ""  # why there is none

    @property
    def mean(self) -> float | None:
        """Over the seeds."""
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """The sample standard deviation, from two seeds on."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def text(self) -> str:
        """`ours / paper`, with the spread where there is one."""
        digits = _DIGITS.get(self.cell.measure, 3)
        ours = "-" if self.mean is None else f"{self.mean:.{digits}f}"
        if self.spread is not None:
            ours += f" ± {self.spread:.{digits}f}"
        return ours if self.cell.paper is None else f"{ours} / {self.cell.paper:.{digits if digits != 2 else 1}f}"


@dataclass(frozen=True)
class TableResult:
    """A grid with its values."""

    grid: PaperTable
    scale: Scale
    entries: tuple[CellResult, ...]

    def entry(self, row: str, column: str) -> CellResult | None:
        """The cell at a place, if the grid has one there."""
        return next((one for one in self.entries if (one.cell.row, one.cell.column) == (row, column)), None)

    @property
    def rows(self) -> list[str]:
        """Rows that hold something."""
        return list(dict.fromkeys(one.cell.row for one in self.entries))

    @property
    def columns(self) -> list[str]:
        """Columns that hold something."""
        return list(dict.fromkeys(one.cell.column for one in self.entries))

    @property
    def seconds(self) -> float:
        """Training time of all cells, each counted once."""
        folders = {folder for entry in self.entries for folder in entry.folders}
        return sum(RunDir(folder).read_summary().seconds for folder in folders)


def collect(
    grid: PaperTable, cells: Sequence[TableCell], scale: Scale, seeds: int, store: RunCache, problems: dict[Path, str]
) -> TableResult:
    """Read what is finished."""
    entries = []
    for cell in cells:
        places = []
        for seed in range(seeds):
            chosen = cell_experiment(grid, cell, scale, seed)
            if chosen is not None:
                places.append(store.place(chosen))
        if not places:
            continue
        done = [place for place in places if place.is_finished()]
        found = [_value(place, cell.measure) for place in done]
        values = tuple(value for value in found if value is not None)
        problem = next((problems[place.path] for place in places if place.path in problems), "")
        entries.append(CellResult(cell, values, tuple(place.path for place in done), problem))
    return TableResult(grid, scale, tuple(entries))


def _seconds(place: RunDir) -> float:
    """The median round; the first one does not count, since worker processes start in it."""
    seconds = [record.seconds for record in place.read_history()]
    return float(median(seconds[1:] or seconds))


def _value(place: RunDir, measure: Measure) -> float | None:
    summary = place.read_summary()
    if measure == "accuracy":
        return summary.test_accuracy
    if measure == "seconds":
        return _seconds(place)
    if measure == "precision":
        return summary.precision
    if measure == "recall":
        return summary.recall
    return read_divergence(place)[measure]
