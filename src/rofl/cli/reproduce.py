"""`rofl reproduce`: the paper's tables and figures by name."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from rofl.config.schema import Experiment
from rofl.data import atomic
from rofl.errors import UserError
from rofl.report.formatting import duration
from rofl.reproduce import PAPER_TABLES, PaperTable, Plan, TableCell
from rofl.reproduce.cell_runner import run_cells
from rofl.reproduce.client_divergence import write_divergence
from rofl.reproduce.cost import core_seconds
from rofl.reproduce.markdown import markdown, notes
from rofl.reproduce.results import CellResult, TableResult, collect
from rofl.reproduce.run_cache import RunCache
from rofl.simulation.worker_pool import cores, default_workers
from rofl.training.run_dir import RunDir


def reproduce(plan: Plan, jobs: int | None, data_dir: Path | None, talk: Console) -> list[TableResult]:
    """Run what is missing, and collect everything."""
    store = RunCache(plan.out / "cells")
    side_by_side = jobs or (1 if plan.scale == "paper" else cores())
    problems: dict[Path, str] = {}
    for alone in (False, True):
        at_once = 1 if alone else side_by_side
        workers = default_workers() if at_once == 1 else 0
        problems |= _run(plan.experiments(alone), store, at_once, workers, data_dir, talk)
    for grid, cells in plan.chosen:
        if any(cell.measure.endswith("apart") for cell in cells):
            _measure_divergence(grid, cells, plan, store, data_dir)
    return [collect(grid, cells, plan.scale, plan.seeds, store, problems) for grid, cells in plan.chosen]


def announce(plan: Plan, talk: Console) -> dict[str, float]:
    """Say beforehand what it will cost here."""
    store = RunCache(plan.out / "cells")
    everything = plan.experiments()
    missing = [one for one in everything if not store.place(one).is_finished()]
    done = len(everything) - len(missing)
    line = f"{plan.name} at scale {plan.scale}: {len(everything)} runs, {done} finished already"
    seconds = core_seconds(missing)
    if missing:
        line += f"; about {duration(seconds / cores())} to go on the {cores()} cores of this machine"
    talk.print(line + ".", markup=False, highlight=False)
    return {"runs": len(everything), "finished": done, "core_seconds": round(seconds)}


def _run(
    experiments: Sequence[Experiment], store: RunCache, jobs: int, workers: int, data_dir: Path | None, talk: Console
) -> dict[Path, str]:
    if all(store.place(one).is_finished() for one in experiments):
        return {}
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeRemainingColumn(compact=True),
        console=talk,
        disable=not talk.is_terminal,
    )
    said: set[Path] = set()
    with bar:
        task = bar.add_task("starting", total=sum(one.rounds for one in experiments))

        def listen(rounds: int, running: list[RunDir]) -> None:
            bar.update(task, completed=rounds, description=f"{len(running)} at work")
            for place in running:
                if place.path not in said and not talk.is_terminal:
                    talk.print(f"runs {place.path.name}", markup=False, highlight=False)
                said.add(place.path)

        return run_cells(experiments, store, jobs, workers, data_dir, listen)


def _measure_divergence(
    grid: PaperTable, cells: Sequence[TableCell], plan: Plan, store: RunCache, data_dir: Path | None
) -> None:
    for cell in cells:
        for chosen in plan.of_cell(grid, cell):
            if store.place(chosen).is_finished():
                write_divergence(store.place(chosen), data_dir)


def write_all(plan: Plan, outcomes: Sequence[TableResult]) -> tuple[Path, Path]:
    """The Markdown file and the page."""
    from rofl import report

    text, page = plan.out / f"{plan.name}.md", plan.out / f"{plan.name}.html"
    atomic.atomic_write(text, "\n".join(markdown(outcome) for outcome in outcomes))
    report.write_paper_page(outcomes, page)
    return text, page


def show_outcome(outcome: TableResult) -> Table:
    """`ours / paper` for the terminal; a wide grid stands on its side."""
    columns, rows = outcome.columns, outcome.rows
    turned = len(columns) > len(rows)
    table = Table(title=f"{outcome.grid.name} ({outcome.grid.where})", title_justify="left", caption_justify="left")
    table.caption = " ".join(notes(outcome))
    table.add_column(outcome.grid.across if turned else outcome.grid.corner)
    for name in rows if turned else columns:
        table.add_column(name, justify="right")
    for first in columns if turned else rows:
        places = [(other, first) if turned else (first, other) for other in (rows if turned else columns)]
        found = [outcome.entry(*place) for place in places]
        table.add_row(first, *("" if entry is None else entry.text for entry in found))
    return table


def as_data(outcomes: Sequence[TableResult]) -> str:
    """Everything as JSON."""
    return json.dumps({outcome.grid.name: [_entry(one) for one in outcome.entries] for outcome in outcomes})


def _entry(entry: CellResult) -> dict[str, Any]:
    return {
        "row": entry.cell.row,
        "column": entry.cell.column,
        "measure": entry.cell.measure,
        "ours": entry.mean,
        "spread": entry.spread,
        "seeds": len(entry.values),
        "paper": entry.cell.paper,
        "problem": entry.problem or None,
    }


def list_grids() -> dict[str, str]:
    """Every table and figure with a line about it."""
    return {name: f"{grid.where}: {grid.about} ({len(grid.cells)} numbers)" for name, grid in PAPER_TABLES.items()}


def raise_failures(outcomes: Sequence[TableResult]) -> None:
    """End with an error where something could not run; what could is shown and kept."""
    problems = dict.fromkeys(entry.problem for outcome in outcomes for entry in outcome.entries if entry.problem)
    if problems:
        raise UserError(f"Not everything ran: {'; '.join(problems)}")
