"""Plans: the tables and cells to run, chosen by name."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.errors import UserError, unknown
from rofl.methods import METHODS
from rofl.reproduce.paper_figures import FIGURES
from rofl.reproduce.paper_table import Measure, PaperTable, Scale, TableCell
from rofl.reproduce.paper_tables import TABLES
from rofl.reproduce.scales import cell_experiment
from rofl.simulation.worker_pool import default_workers

DATASET_TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10", "clothing1m": "Clothing1M", "covidx": "COVIDx"}
PAPER_TABLES: dict[str, PaperTable] = {table.name: table for table in (*FIGURES, *TABLES)}


@dataclass(frozen=True)
class Plan:
    """The cells to run, and their folder.

    Attributes:
        name: The name of the plan's files: that of its table, or "all".
        chosen: The tables, each with its chosen cells.
        scale: The scale of the runs.
        seeds: Runs of each cell, with seeds 0, 1, ...
        out: The folder of runs and results, which ends with the scale's name.
    """

    name: str
    chosen: list[tuple[PaperTable, list[TableCell]]]
    scale: Scale
    seeds: int
    out: Path

    @property
    def cells_dir(self) -> Path:
        """The folder of the run directories, which all plans of this scale share."""
        return self.out / "cells"

    def workers(self, jobs: int) -> int:
        """Return the number of client processes of each cell when `jobs` cells run in parallel."""
        return default_workers() if jobs == 1 else 0

    def cell_experiments(self, table: PaperTable, cell: TableCell) -> Sequence[Experiment]:
        """Return the experiments of a cell, one per seed; none if the scale has too few clients for it."""
        experiments = (cell_experiment(table, cell, self.scale, seed) for seed in range(self.seeds))
        return [experiment for experiment in experiments if experiment is not None]

    def experiments(self, timed: bool | None = None) -> list[Experiment]:
        """Return all experiments of the plan, each once.

        Args:
            timed: True for those of tables that measure time, False for those of the others, None for all.
        """
        chosen: dict[str, Experiment] = {}
        for table, cells in self.chosen:
            if timed is None or table.timed == timed:
                chosen |= {one.toml(): one for cell in cells for one in self.cell_experiments(table, cell)}
        return list(chosen.values())


def make_plan(
    name: str = "all",
    scale: Scale = "tiny",
    seeds: int = 1,
    out: Path | str = Path("runs/reproduce"),
    cells: str = "",
    data: str = "",
    method: str = "",
) -> Plan:
    """Return a plan for a table or figure of the paper.

    Args:
        name: A key of `PAPER_TABLES`, or "all".
        scale: "tiny" (the embedded digits), "lite" (real images, minutes a cell), "medium" (hours) or "paper".
        seeds: Runs of each cell, with seeds 0, 1, ...
        out: The folder of all scales; the plan's own is `<out>/<scale>`.
        cells: Rows, columns or methods with commas between; only cells in these are run. All if empty.
        data: Another of the paper's data sets, instead of the table's.
        method: A further method, such as "package.module:Class", which is added to each table.

    Raises:
        UserError: A name is unknown, or no cell matches.
    """
    words = {word.strip().lower() for word in cells.split(",") if word.strip()}
    tables = [_on_dataset(table, data) for table in find_tables(name)] if data else find_tables(name)
    if method:
        METHODS.find(method)  # refuses a wrong name before anything runs
        tables = [_with_method(table, method) for table in tables]
    for word in sorted(words - set().union(*(_cell_words(table) for table in tables))):
        example = f"a row or column, such as {tables[0].rows[-1]!r} or {tables[0].columns[0]!r}"
        raise UserError(f"No cell of {name} is called {word!r}.", example)
    chosen = [(table, kept) for table in tables if (kept := _choose_cells(table, words))]
    if not chosen:
        raise UserError(f"No cell of {name} is in a row and a column of {cells!r}.", "fewer words")
    return Plan(f"{name}-{data}" if data else name, chosen, scale, seeds, Path(out) / scale)


def find_tables(name: str) -> list[PaperTable]:
    """Return the table of a name, or every table for "all".

    Raises:
        UserError: There is no such table; the nearest name is suggested.
    """
    if name == "all":
        return list(PAPER_TABLES.values())
    if name not in PAPER_TABLES:
        raise unknown("table or figure", name, [*PAPER_TABLES, "all"])
    return [PAPER_TABLES[name]]


def _on_dataset(table: PaperTable, data: str) -> PaperTable:
    """Return the same cells on another of the paper's data sets, with a note."""
    if data not in DATASET_TITLES:
        raise unknown("data set of the paper", data, DATASET_TITLES)
    if data == table.data:
        return table
    note = f"Ours is on {DATASET_TITLES[data]}, the paper's numbers are for {DATASET_TITLES[table.data]}."
    return replace(table, data=data, note=f"{note} {table.note}".strip())


def _with_method(table: PaperTable, method: str) -> PaperTable:
    """Return a table with rows for a further method: the settings of the others, without their hyper-parameters.

    Equal cells are merged. The row is named after the method, and after the original row if the method has several
    cells in a column.
    """
    found: dict[tuple[str, Measure, str], TableCell] = {}
    for cell in table.cells:
        changes = {key: value for key, value in cell.changes.items() if not key.startswith("method.")}
        found.setdefault((cell.column, cell.measure, repr(changes)), replace(cell, changes=changes))
    columns = Counter(cell.column for cell in found.values())
    rows = [
        replace(
            cell,
            row=method if columns[cell.column] == 1 else f"{method}: {cell.row}",
            method=method,
            paper=None,
        )
        for cell in found.values()
    ]
    return replace(table, cells=(*table.cells, *rows))


def _cell_words(table: PaperTable) -> set[str]:
    """Return all words that select cells of a table: rows, columns and methods, in lower case."""
    return {word.lower() for cell in table.cells for word in (cell.row, cell.column, cell.method)}


def _choose_cells(table: PaperTable, words: set[str]) -> list[TableCell]:
    """Return the selected cells: column names restrict the columns, row names and methods restrict the rows."""
    columns = {column for column in table.columns if column.lower() in words}
    rows = {cell.row for cell in table.cells if {cell.row.lower(), cell.method.lower()} & words}
    if words and not columns and not rows:
        return []
    columns, rows = columns or set(table.columns), rows or set(table.rows)
    return [cell for cell in table.cells if cell.column in columns and cell.row in rows]
