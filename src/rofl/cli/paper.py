"""`rofl reproduce`: the paper's tables and figures by name."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from rofl.cli.app import DataDir, Json, app, stderr, stdout
from rofl.cli.looking import listing

Scale = Literal["tiny", "lite", "paper"]  # as rofl.reproduce has it, which imports torch


@app.command(epilog="Example: rofl reproduce table-ablation --scale tiny --seeds 3")
def reproduce(
    name: Annotated[str, typer.Argument(help="a table or figure, or `all`; --list shows the names")] = "all",
    scale: Annotated[Scale, typer.Option(help="tiny: digits; lite: 10,000 real images; paper: as the paper")] = "tiny",
    cells: Annotated[str, typer.Option(help="only these rows, columns or methods, with commas between")] = "",
    data: Annotated[str, typer.Option(help="another of the paper's data sets than the table's: mnist, cifar10")] = "",
    seeds: Annotated[int, typer.Option(min=1, help="seeds 0, 1, ... of this many runs each")] = 1,
    out: Annotated[Path, typer.Option("--out", help="where runs and results are kept")] = Path("runs/reproduce"),
    jobs: Annotated[int | None, typer.Option(min=1, help="cells side by side; one per core, 1 at scale paper")] = None,
    data_dir: DataDir = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="say what it would cost here, and run nothing")] = False,
    list_all: Annotated[bool, typer.Option("--list", help="every table and figure by name")] = False,
    as_json: Json = False,
) -> None:
    """The paper's tables and figures, ours beside the paper's; finished cells are kept."""
    from rofl.cli import reproduce as work
    from rofl.reproduce import make_plan

    if list_all:
        listing(work.list_grids(), "table or figure", as_json)
        return
    plan = make_plan(name, scale, seeds, out, cells, data)
    costs = work.announce(plan, stderr)
    if plan_only:
        if as_json:
            stdout.print_json(json.dumps(costs))
        return
    try:
        outcomes = work.reproduce(plan, jobs, data_dir, stderr)
    except KeyboardInterrupt:
        stderr.print("Stopped. Finished cells are kept; the same command goes on.")
        raise typer.Exit(130) from None
    text, page = work.write_all(plan, outcomes)
    if as_json:
        stdout.print_json(work.as_data(outcomes))
    else:
        for outcome in outcomes:
            stdout.print(work.show_outcome(outcome))
        stderr.print(f"As Markdown: {text}\nThe page: {page}", markup=False, highlight=False)
    work.raise_failures(outcomes)
