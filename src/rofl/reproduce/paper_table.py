"""A table or figure of the paper: the settings of each cell, and the paper's number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rofl.core.settings import Settings

Scale = Literal["tiny", "lite", "medium", "paper"]
Measure = Literal["accuracy", "precision", "recall", "seconds", "features apart", "weights apart"]


@dataclass(frozen=True)
class ScaledBy:
    """A setting as a multiple of the scale's own value: `ScaledBy(2)` for a T_pl of 200 instead of 100."""

    factor: float


@dataclass(frozen=True)
class TableCell:
    """One number of a table.

    Attributes:
        row: The name of its row.
        column: The name of its column.
        method: The method to run.
        changes: Settings with dotted keys, on top of the scale's preset; values may be `ScaledBy`.
        paper: The number in the paper; None in figures, whose numbers the paper does not print.
        measure: The kind of number.
    """

    row: str
    column: str
    method: str = "rofl"
    changes: Settings = field(default_factory=dict)
    paper: float | None = None
    measure: Measure = "accuracy"

    @property
    def is_divergence(self) -> bool:
        """Whether the number is a divergence of clients' features or weights (Figure 4)."""
        return self.measure in ("features apart", "weights apart")


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure of the paper.

    Attributes:
        name: Its name in `rofl reproduce`.
        where: Where it is in the paper, such as "Table 1".
        about: A short description.
        data: The data set that the paper used.
        cells: Its numbers, row by row.
        corner: The heading of the rows.
        across: The heading of the columns.
        timed: Whether it measures time; its cells then run one at a time, without other load.
        note: A note about the numbers.
    """

    name: str
    where: str
    about: str
    data: str
    cells: tuple[TableCell, ...]
    corner: str = "method"
    across: str = ""
    timed: bool = False
    note: str = ""

    @property
    def rows(self) -> list[str]:
        """The names of the rows, in order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))


def noise_settings(kind: str, ratio: float) -> Settings:
    """Return the settings of a noise kind and ratio, with dotted keys."""
    return {"noise.kind": kind, "noise.ratio": ratio}


def table_row(row: str, method: str, columns: Mapping[str, Settings], paper: Iterable[float | None]) -> list[TableCell]:
    """Return the cells of a row.

    Args:
        row: The name of the row.
        method: The method of all its cells.
        columns: The name of each column, and its settings with dotted keys.
        paper: The paper's numbers, in the columns' order.
    """
    return [
        TableCell(row, column, method, changes, number)
        for (column, changes), number in zip(columns.items(), paper, strict=True)
    ]
