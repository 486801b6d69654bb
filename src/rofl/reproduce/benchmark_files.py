"""The results of a benchmark as Markdown and as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from rofl.data.atomic import atomic_write
from rofl.reproduce.leaderboard import Leaderboard, MethodCost
from rofl.reproduce.markdown import markdown_row
from rofl.reproduce.ranking import Ranking
from rofl.reproduce.results import CellResult, TableResult

_SCALES = {
    "tiny": "digits of 8 x 8 pixels, 20 clients, 5 a round",
    "lite": "20 clients, small networks, minutes a cell: `cifar10-lite` or `mnist-lite`",
    "medium": "all images, 100 clients, 10 a round, smaller networks: `cifar10-medium` or `mnist-medium`",
    "paper": "all images, 100 clients, 10 a round, the paper's CNN",
}


@dataclass(frozen=True)
class BenchmarkRow:
    """The runs of a method in a setting, as `rofl benchmark --json` prints them.

    Attributes:
        method: The row.
        setting: The column.
        accuracies: In per cent at equal gradient steps, one per finished seed.
        accuracies_in_time: The same at equal time.
        problem: Why a seed could not run; None if all could.
    """

    method: str
    setting: str
    accuracies: list[float]
    accuracies_in_time: list[float]
    problem: str | None


def benchmark_rows_json(board: Leaderboard) -> list[BenchmarkRow]:
    """Return the result or the problem of each cell."""
    rows = []
    for steps, timed in zip(board.by_steps.cells, board.by_time.cells, strict=True):
        if steps.values or steps.problem:
            values, in_time = ([round(value, 3) for value in each.values] for each in (steps, timed))
            rows.append(BenchmarkRow(steps.cell.row, steps.cell.column, values, in_time, steps.problem or None))
    return rows


def write_benchmark_files(board: Leaderboard) -> Path:
    """Write `<name>.md` and `<name>.json` beside the runs, and return the path of the Markdown."""
    path = board.plan.out / f"{board.plan.name}.md"
    atomic_write(path, benchmark_markdown(board))
    content = {
        "cells": [asdict(row) for row in benchmark_rows_json(board)],
        "costs": [asdict(cost) for cost in board.costs],
    }
    atomic_write(path.with_suffix(".json"), json.dumps(content, indent=1) + "\n")
    return path


def benchmark_markdown(board: Leaderboard) -> str:
    """Return Markdown with the plan, the ranking, the accuracies at equal steps and at equal time, and the costs."""
    parts = [
        benchmark_note(board),
        ranking_note(board.steps_ranking),
        ranking_table(board),
        "**Accuracy in per cent at equal gradient steps**",
        accuracy_table(board.by_steps),
        "**Accuracy in per cent at equal time**",
        accuracy_table(board.by_time),
        "**What a method costs**",
        cost_table(board),
        *(f"- Not run: {problem}" for problem in board.by_steps.problems),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def benchmark_note(board: Leaderboard) -> str:
    """Return a sentence about the scale, the data and the seeds."""
    plan, table = board.plan, board.by_steps
    seeds = sorted({len(cell.values) for cell in table.cells})
    several = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"{seeds[0]}"
    data = "" if plan.scale == "tiny" else f"{plan.table.data}: "
    total = sum(map(len, plan.runs.values()))
    return (
        f"Scale {plan.scale} ({data}{_SCALES[plan.scale]}), {several} seed{'' if seeds == [1] else 's'} of each cell, "
        f"{board.finished} of {total} runs."
    )


def ranking_note(ranking: Ranking) -> str:
    """Return a sentence about the statistical tests of a ranking."""
    left_out = f" Not ranked, since not in all settings: {', '.join(ranking.left_out)}." if ranking.left_out else ""
    if ranking.critical_difference is None:
        return f"Too few methods or settings for a test.{left_out}"
    p_value = "" if ranking.p_value is None else f"Friedman's test: p = {ranking.p_value:.2g}. "
    return (
        f"Mean ranks over {len(ranking.settings)} settings. {p_value}Two mean ranks that differ by more than "
        f"{ranking.critical_difference:.1f} differ by Nemenyi's test at the level 0.05.{left_out}"
    )


def ranking_table(board: Leaderboard) -> str:
    """Return the methods by mean rank, as a Markdown table."""
    lines = _header(["method", "mean rank, equal steps", "mean rank, equal time", "mean accuracy", "worst accuracy"])
    in_time = {method.name: method.mean for method in board.time_ranking.methods}
    for method in board.steps_ranking.methods:
        means = [cell.mean for cell in board.by_steps.cells if cell.cell.row == method.name and cell.mean is not None]
        timed = f"{in_time[method.name]:.1f}" if method.name in in_time else "-"
        figures = [f"{method.mean:.1f}", timed, f"{fmean(means):.1f}", f"{min(means):.1f}"]
        lines.append(markdown_row([row_name(board, method.name), *figures]))
    return "\n".join(lines)


def accuracy_table(result: TableResult) -> str:
    """Return accuracies with their spread over seeds, the best of each setting in bold."""
    best = best_means(result)
    lines = _header(["method", *best])
    for row in result.rows:
        cells = [result.cell(row, column) for column in best]
        if any(cell is not None and cell.values for cell in cells):
            marks = [
                "**" if cell and cell.mean == most else "" for cell, most in zip(cells, best.values(), strict=True)
            ]
            texts = [f"{mark}{accuracy_text(cell)}{mark}" for cell, mark in zip(cells, marks, strict=True)]
            lines.append(markdown_row([row, *texts]))
    return "\n".join(lines)


def cost_table(board: Leaderboard) -> str:
    """Return the costs of each method, as a Markdown table."""
    lines = _header(
        ["method", "passes", "rounds", "rounds in plain's time", "s a round", "kB a round", "kB kept", "MB of memory"]
    )
    lines += [markdown_row([row_name(board, cost.name), *cost_texts(cost)]) for cost in board.costs]
    return "\n".join(lines)


def cost_texts(cost: MethodCost) -> list[str]:
    """Return the cells of `cost_table` for one method."""
    memory = "-" if cost.memory is None else f"{cost.memory / 1e6:.0f}"
    counts = [str(cost.passes), str(cost.rounds), str(cost.rounds_in_time)]
    sizes = [f"{cost.round_bytes / 1e3:,.0f}", f"{cost.state_bytes / 1e3:,.1f}", memory]
    return [*counts, f"{cost.round_seconds:.2f}", *sizes]


def _header(names: list[str]) -> list[str]:
    return [markdown_row(names), markdown_row(["---"] * len(names))]


def row_name(board: Leaderboard, row: str) -> str:
    """Return a method's name, with a star if it is given the noise ratio."""
    cost = board.cost(row)
    return f"{row} *" if cost is not None and cost.told_noise else row


def accuracy_text(cell: CellResult | None) -> str:
    """Return the accuracy of a cell with its spread, or a dash."""
    return "-" if cell is None else cell.text


def best_means(result: TableResult) -> dict[str, float]:
    """Return the best mean accuracy of each setting in which any method has one."""
    best: dict[str, float] = {}
    for cell in result.cells:
        if cell.mean is not None:
            best[cell.cell.column] = max(best.get(cell.cell.column, 0.0), cell.mean)
    return best
