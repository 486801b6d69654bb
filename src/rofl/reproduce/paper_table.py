"""A table or figure of the paper as a grid of experiments, declared once with the paper's own numbers beside."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Scale = Literal["tiny", "lite", "paper"]
Measure = Literal["accuracy", "precision", "recall", "seconds", "features apart", "weights apart"]


@dataclass(frozen=True)
class ScaledBy:
    """A setting as a multiple of the scale's own value: T_pl of 200 where 100 is usual is twice the usual one."""

    factor: float


@dataclass(frozen=True)
class TableCell:
    """One number of a table: what to run, and what the paper found."""

    row: str
    column: str
    method: str = "rofl"
    changes: Mapping[str, Any] = field(default_factory=dict)  # dotted settings
    paper: float | None = None  # None: a figure, whose numbers the paper does not print
    measure: Measure = "accuracy"


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure."""

    name: str
    where: str  # in the paper
    about: str
    data: str  # the paper's data set
    cells: tuple[TableCell, ...]
    corner: str = "method"  # what the rows are
    across: str = ""  # what the columns are
    alone: bool = False  # measured in time: one cell at a time, with nothing else running
    note: str = ""

    @property
    def rows(self) -> list[str]:
        """The rows in order."""
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        """The columns in order."""
        return list(dict.fromkeys(cell.column for cell in self.cells))


def noise(kind: str, ratio: float) -> dict[str, Any]:
    """The settings of a noise."""
    return {"noise.kind": kind, "noise.ratio": ratio}


def line(
    row: str, method: str, columns: Mapping[str, Mapping[str, Any]], paper: Iterable[float | None]
) -> list[TableCell]:
    """A row of cells, with the paper's numbers in the columns' order."""
    return [
        TableCell(row, column, method, changes, number)
        for (column, changes), number in zip(columns.items(), paper, strict=True)
    ]
