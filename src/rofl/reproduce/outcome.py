"""What came out of a grid, beside what the paper found."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from rofl.reproduce.cells import Store
from rofl.reproduce.divergence import read_divergence
from rofl.reproduce.grid import Cell, Grid, Measure, Scale
from rofl.reproduce.scales import experiment_of
from rofl.run_folder import RunFolder

_DIGITS: dict[Measure, int] = {"accuracy": 1, "precision": 3, "recall": 3, "seconds": 2}


@dataclass(frozen=True)
class Entry:
    """One cell's values, one per finished seed."""

    cell: Cell
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
class Outcome:
    """A grid with its values."""

    grid: Grid
    scale: Scale
    entries: tuple[Entry, ...]

    def entry(self, row: str, column: str) -> Entry | None:
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
        return sum(float(RunFolder(folder).read_summary()["seconds"]) for folder in folders)


def collect(
    grid: Grid, cells: Sequence[Cell], scale: Scale, seeds: int, store: Store, problems: dict[Path, str]
) -> Outcome:
    """Read what is finished."""
    entries = []
    for cell in cells:
        places = []
        for seed in range(seeds):
            chosen = experiment_of(grid, cell, scale, seed)
            if chosen is not None:
                places.append(store.place(chosen))
        if not places:
            continue
        done = [place for place in places if place.is_finished()]
        found = [_value(place, cell.measure) for place in done]
        values = tuple(value for value in found if value is not None)
        problem = next((problems[place.path] for place in places if place.path in problems), "")
        entries.append(Entry(cell, values, tuple(place.path for place in done), problem))
    return Outcome(grid, scale, tuple(entries))


def _seconds(place: RunFolder) -> float:
    """The median round; the first one does not count, since worker processes start in it."""
    seconds = [entry["seconds"] for entry in place.read_history()]
    return float(median(seconds[1:] or seconds))


def _value(place: RunFolder, measure: Measure) -> float | None:
    summary: dict[str, Any] = place.read_summary()
    if measure == "accuracy":
        return float(summary["test_accuracy"])
    if measure == "seconds":
        return _seconds(place)
    if measure in ("precision", "recall"):
        return None if summary["detection"] is None else summary["detection"][measure]
    return read_divergence(place)[measure]
