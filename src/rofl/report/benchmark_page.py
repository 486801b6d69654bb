"""The HTML page of a benchmark: rankings as pictures, accuracies, and the costs of methods."""

from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from rofl.data.atomic import atomic_write
from rofl.report.charts import COLOURS, PlotlyJson, base_layout, plot_call, plotly_text
from rofl.report.environment import Section, render, render_document
from rofl.report.ranking_picture import ranking_svg
from rofl.reproduce.benchmark_files import (
    accuracy_text,
    benchmark_note,
    best_means,
    cost_texts,
    ranking_note,
    row_name,
)
from rofl.reproduce.leaderboard import Leaderboard
from rofl.reproduce.results import TableResult

_COST_CHART = "benchmark-cost"
_COSTS = ("passes", "rounds", "rounds in plain's time", "s a round", "kB a round", "kB kept", "MB of memory")


@dataclass(frozen=True)
class AccuracyCell:
    """An accuracy as text, and whether it is the best of its setting."""

    text: str
    best: bool = False


@dataclass(frozen=True)
class BenchmarkTableRow:
    """A method's row of a table."""

    name: str
    cells: list[AccuracyCell]


def write_benchmark_page(board: Leaderboard, out: Path) -> Path:
    """Write a benchmark as one self-contained HTML page.

    Args:
        board: The results of the benchmark.
        out: The file to write.

    Returns:
        The path of the file.
    """
    title = f"Benchmark {board.plan.name}, scale {board.plan.scale}"
    sections = [_rankings(board), _cost_chart(board), _accuracies(board), _costs(board)]
    atomic_write(out, render_document("paper_page.html.j2", title, sections, eyebrow="rofl benchmark"))
    return out


def _rankings(board: Leaderboard) -> Section:
    found = {"At equal gradient steps": board.steps_ranking, "At equal time": board.time_ranking}
    pictures = [Markup(ranking_svg(each, heading)) for heading, each in found.items() if each.methods]
    html = render(
        "benchmark_ranking.html.j2",
        lead=f"{benchmark_note(board)} {ranking_note(board.steps_ranking)}",
        pictures=pictures,
        problems=board.by_steps.problems,
    )
    return Section(html)


def _accuracies(board: Leaderboard) -> Section:
    tables = {
        "Accuracy at equal gradient steps, in per cent": board.by_steps,
        "Accuracy at equal time, in per cent": board.by_time,
    }
    lead = "The mean over seeds ± the standard deviation; the best of each setting in bold."
    parts = [
        render("benchmark_table.html.j2", heading=heading, lead=lead, columns=list(best_means(each)), rows=_rows(each))
        for heading, each in tables.items()
    ]
    return Section(Markup("\n").join(parts))


def _rows(result: TableResult) -> list[BenchmarkTableRow]:
    """Return the rows of all methods that have a finished run."""
    best = best_means(result)
    rows = {row: [result.cell(row, column) for column in best] for row in result.rows}
    return [
        BenchmarkTableRow(
            row,
            [
                AccuracyCell(accuracy_text(cell), cell is not None and cell.mean == most)
                for cell, most in zip(cells, best.values(), strict=True)
            ],
        )
        for row, cells in rows.items()
        if any(cell is not None and cell.values for cell in cells)
    ]


def _costs(board: Leaderboard) -> Section:
    rows = [
        BenchmarkTableRow(row_name(board, cost.name), [AccuracyCell(text) for text in cost_texts(cost)])
        for cost in board.costs
    ]
    lead = (
        "Passes: forward and backward passes of a sample through a network in a local epoch; a method with more passes "
        "gets fewer rounds. Seconds are measured on one core. Kept: the data that a client stores between its rounds. "
        "Memory: the peak of the run's process, less its memory before the run. * gets the noise ratio as a setting."
    )
    return Section(
        render("benchmark_table.html.j2", heading="What a method costs", lead=lead, columns=_COSTS, rows=rows)
    )


def _cost_chart(board: Leaderboard) -> Section:
    """Return the chart of mean rank against the training time of a whole run, one point per ranked method."""
    points = [(method, cost) for method in board.steps_ranking.methods if (cost := board.cost(method.name)) is not None]
    if not points:
        return Section()
    trace: PlotlyJson = {
        "type": "scatter",
        "mode": "markers+text",
        "x": [cost.rounds * cost.round_seconds for _, cost in points],
        "y": [method.mean for method, _ in points],
        "text": [plotly_text(method.name) for method, _ in points],
        "textposition": "top center",
        "hovertemplate": "%{text}: %{x:.1f} s, mean rank %{y:.1f}<extra></extra>",
        "marker": {"color": COLOURS[0], "size": 9},
    }
    layout = base_layout() | {"showlegend": False, "hovermode": "closest"}
    layout["xaxis"] |= {"title": {"text": "seconds of training in a run"}, "hoverformat": ".1f"}
    layout["yaxis"] |= {"title": {"text": "mean rank"}, "ticksuffix": "", "autorange": "reversed"}
    html = render("benchmark_cost.html.j2", element_id=_COST_CHART)
    return Section(html, plot_call(_COST_CHART, [trace], layout))
