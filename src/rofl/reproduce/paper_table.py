"""A table or figure of the paper, declared once: what to run for each number, and the number that the paper prints."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from rofl.core.settings import Settings

Scale = Literal["tiny", "lite", "medium", "paper"]
Measure = Literal["accuracy", "precision", "recall", "seconds", "features apart", "weights apart"]


@dataclass(frozen=True)
class ScaledBy:
    """A setting as a multiple of the scale's own value: T_pl of 200 where 100 is usual is `ScaledBy(2)`."""

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
        measure: What the number is.
    """

    row: str
    column: str
    method: str = "rofl"
    changes: Settings = field(default_factory=dict)
    paper: float | None = None
    measure: Measure = "accuracy"

    @property
    def is_divergence(self) -> bool:
        """Whether the number says how far clients' features or weights lie apart (Figure 4)."""
        return self.measure in ("features apart", "weights apart")


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure of the paper.

    Attributes:
        name: Its name in `rofl reproduce`.
        where: Where it is in the paper, such as "Table 1".
        about: What it shows, as half a sentence.
        data: The data set that the paper used.
        cells: Its numbers, row by row.
        corner: What the rows are.
        across: What the columns are.
        timed: Whether it measures time; its cells then run one at a time, with nothing beside them.
        note: A sentence for the reader of the numbers.
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
