"""Which cells to run, chosen by name."""

from dataclasses import dataclass, replace
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.errors import UserError, unknown
from rofl.reproduce.paper_figures import FIGURES
from rofl.reproduce.paper_table import PaperTable, Scale, TableCell
from rofl.reproduce.paper_tables import TABLES
from rofl.reproduce.scales import cell_experiment

DATA = {"mnist": "MNIST", "cifar10": "CIFAR-10", "clothing1m": "Clothing1M", "covidx": "COVIDx"}
PAPER_TABLES: dict[str, PaperTable] = {grid.name: grid for grid in (*FIGURES, *TABLES)}


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    name: str
    chosen: list[tuple[PaperTable, list[TableCell]]]
    scale: Scale
    seeds: int
    out: Path

    def of_cell(self, grid: PaperTable, cell: TableCell) -> list[Experiment]:
        """One experiment per seed; none where the scale is too small for the cell."""
        found = (cell_experiment(grid, cell, self.scale, seed) for seed in range(self.seeds))
        return [one for one in found if one is not None]

    def experiments(self, alone: bool | None = None) -> list[Experiment]:
        """All that has to run, each once; only those timed alone, or only the others, where asked."""
        found: dict[str, Experiment] = {}
        for grid, cells in self.chosen:
            if alone is None or grid.alone == alone:
                found |= {one.toml(): one for cell in cells for one in self.of_cell(grid, cell)}
        return list(found.values())


def make_plan(name: str, scale: Scale, seeds: int, out: Path, cells: str = "", data: str = "") -> Plan:
    """Choose grids by name and, within them, cells by row, column or method; on another data set where one is named."""
    wanted = {word.strip().lower() for word in cells.split(",") if word.strip()}
    grids = [_on(grid, data) for grid in find_tables(name)] if data else find_tables(name)
    for word in sorted(wanted - set().union(*(_words(grid) for grid in grids))):
        example = f"a row or column, such as {grids[0].rows[-1]!r} or {grids[0].columns[0]!r}"
        raise UserError(f"No cell of {name} is called {word!r}.", example)
    chosen = [(grid, _choose(grid, wanted)) for grid in grids]
    chosen = [(grid, kept) for grid, kept in chosen if kept]
    if not chosen:
        raise UserError(f"No cell of {name} is in a row and a column of {cells!r}.", "fewer words")
    return Plan(f"{name}-{data}" if data else name, chosen, scale, seeds, out / scale)


def find_tables(name: str) -> list[PaperTable]:
    """A grid by name, or every one for `all`."""
    if name == "all":
        return list(PAPER_TABLES.values())
    if name not in PAPER_TABLES:
        raise unknown("table or figure", name, [*PAPER_TABLES, "all"])
    return [PAPER_TABLES[name]]


def _on(grid: PaperTable, data: str) -> PaperTable:
    """The same cells on another of the paper's data sets."""
    if data not in DATA:
        raise unknown("data set of the paper", data, DATA)
    if data == grid.data:
        return grid
    note = f"Ours is on {DATA[data]}, the paper's numbers are for {DATA[grid.data]}."
    return replace(grid, data=data, note=f"{note} {grid.note}".strip())


def _words(grid: PaperTable) -> set[str]:
    """All that its cells can be called."""
    return {word.lower() for cell in grid.cells for word in (cell.row, cell.column, cell.method)}


def _choose(grid: PaperTable, wanted: set[str]) -> list[TableCell]:
    """Words that name columns limit the columns, words that name rows or methods limit the rows."""
    columns = {column for column in grid.columns if column.lower() in wanted}
    rows = {cell.row for cell in grid.cells if {cell.row.lower(), cell.method} & wanted}
    if wanted and not columns and not rows:
        return []
    columns, rows = columns or set(grid.columns), rows or set(grid.rows)
    return [cell for cell in grid.cells if cell.column in columns and cell.row in rows]
