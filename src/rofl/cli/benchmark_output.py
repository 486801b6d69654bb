"""The ranking of `rofl benchmark` for the terminal, and the list of benchmarks."""

from rich.table import Table

from rofl.reproduce.benchmark_files import accuracy_text, benchmark_note, ranking_note, row_name
from rofl.reproduce.benchmark_tables import BENCHMARKS, benchmark_rows, benchmark_settings
from rofl.reproduce.leaderboard import Leaderboard


def ranking_output(board: Leaderboard) -> Table:
    """Return the methods by mean rank, with their accuracy in each setting."""
    columns = board.by_steps.columns
    table = Table(title=benchmark_note(board), title_justify="left", caption_justify="left")
    table.caption = ranking_note(board.steps_ranking) + " * is told the noise ratio."
    for heading in ("method", "rank", "in time", *columns):
        table.add_column(heading, justify="left" if heading == "method" else "right")
    in_time = {method.name: f"{method.mean:.1f}" for method in board.time_ranking.methods}
    ranks = {method.name: f"{method.mean:.1f}" for method in board.steps_ranking.methods}
    others = [row for row in board.by_steps.rows if row not in ranks and board.cost(row) is not None]
    for row in [*ranks, *others]:
        cells = [accuracy_text(board.by_steps.cell(row, column)) for column in columns]
        table.add_row(row_name(board, row), ranks.get(row, "-"), in_time.get(row, "-"), *cells)
    return table


def listing() -> dict[str, str]:
    """Return a line about each benchmark, and lines with all settings and all methods."""
    lines = dict(BENCHMARKS)
    lines["settings"] = ", ".join(benchmark_settings("all", "cifar10"))
    lines["methods"] = ", ".join(benchmark_rows())
    return lines
