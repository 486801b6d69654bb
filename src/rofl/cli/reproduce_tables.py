"""The results of `rofl reproduce` and `rofl benchmark` for the terminal and as JSON."""

from dataclasses import asdict, dataclass

from rich.table import Table

from rofl.cli.app import print_json, print_message
from rofl.report.formatting import duration
from rofl.reproduce import Plan, TableResult, plan_cost
from rofl.reproduce.benchmark_files import accuracy_text, benchmark_note, ranking_note, row_name
from rofl.reproduce.benchmark_tables import BENCHMARKS, benchmark_rows, benchmark_settings
from rofl.reproduce.leaderboard import Leaderboard
from rofl.reproduce.markdown import notes
from rofl.simulation.worker_pool import cores


def print_cost(plan: Plan, as_json: bool) -> None:
    """Print the cost of a plan on this machine: a sentence, and optionally JSON."""
    cost = plan_cost(plan)
    line = f"{plan.name} at scale {plan.scale}: {cost.runs} runs, {cost.finished} finished already"
    if cost.finished < cost.runs:
        line += f"; about {duration(cost.core_seconds / cores())} to go on the {cores()} cores of this machine"
    print_message(f"{line}.")
    if as_json:
        print_json(asdict(cost))


def result_table(result: TableResult) -> Table:
    """Return the table `ours / paper`, transposed if it has more columns than rows."""
    columns, rows = result.columns, result.rows
    transposed = len(columns) > len(rows)
    table = Table(title=f"{result.table.name} ({result.table.where})", title_justify="left", caption_justify="left")
    table.caption = " ".join(notes(result))
    table.add_column(result.table.across if transposed else result.table.corner)
    for name in rows if transposed else columns:
        table.add_column(name, justify="right")
    for first in columns if transposed else rows:
        cells = [
            result.cell(other, first) if transposed else result.cell(first, other)
            for other in (rows if transposed else columns)
        ]
        table.add_row(first, *("" if cell is None else cell.text for cell in cells))
    return table


@dataclass(frozen=True)
class ResultRow:
    """One number of a table as `rofl reproduce --json` prints it.

    Attributes:
        row: The name of its row.
        column: The name of its column.
        measure: The kind of number.
        ours: The mean over seeds; None if no run gave a number.
        spread: The standard deviation over seeds.
        seeds: How many runs gave a number.
        paper: The number in the paper; None in figures.
        problem: Why there is not a number; None if there is one.
    """

    row: str
    column: str
    measure: str
    ours: float | None
    spread: float | None
    seeds: int
    paper: float | None
    problem: str | None


def result_rows(result: TableResult) -> list[ResultRow]:
    """Return the results of a table, one entry per cell."""
    return [
        ResultRow(
            row=one.cell.row,
            column=one.cell.column,
            measure=one.cell.measure,
            ours=one.mean,
            spread=one.spread,
            seeds=len(one.values),
            paper=one.cell.paper,
            problem=one.problem or None,
        )
        for one in result.cells
    ]


def ranking_output(board: Leaderboard) -> Table:
    """Return the methods by mean rank, with their accuracy in each setting."""
    columns = board.by_steps.columns
    table = Table(title=benchmark_note(board), title_justify="left", caption_justify="left")
    table.caption = ranking_note(board.steps_ranking) + " * gets the noise ratio as a setting."
    for heading in ("method", "rank", "in time", *columns):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    in_time = {method.name: f"{method.mean:.1f}" for method in board.time_ranking.methods}
    ranks = {method.name: f"{method.mean:.1f}" for method in board.steps_ranking.methods}
    others = [row for row in board.by_steps.rows if row not in ranks and board.cost(row) is not None]
    for row in [*ranks, *others]:
        cells = [accuracy_text(board.by_steps.cell(row, column)) for column in columns]
        table.add_row(row_name(board, row), ranks.get(row, "-"), in_time.get(row, "-"), *cells)
    return table


def benchmark_listing() -> dict[str, str]:
    """Return a line about each benchmark, and lines with all settings and all methods."""
    lines = dict(BENCHMARKS)
    lines["settings"] = ", ".join(benchmark_settings("all", "cifar10"))
    lines["methods"] = ", ".join(benchmark_rows())
    return lines
