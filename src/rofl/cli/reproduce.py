"""`rofl reproduce`: the paper's tables and figures by name."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from rofl.cli.app import app, print_json, print_listing, print_message, stdout
from rofl.cli.options import DataDir, Jobs, Json, PlanOnly, Seeds
from rofl.errors import UserError

ScaleName = Literal["tiny", "lite", "medium", "paper"]  # as rofl.reproduce.Scale, which would import torch


@app.command("reproduce", epilog="Example: rofl reproduce table-ablation --scale tiny --seeds 3")
def reproduce_command(
    name: Annotated[str, typer.Argument(help="a table or figure, or `all`; --list shows the names")] = "all",
    scale: Annotated[
        ScaleName, typer.Option(help="tiny: digits; lite: images in minutes; medium: in hours; paper: as the paper")
    ] = "tiny",
    cells: Annotated[str, typer.Option(help="only these rows, columns or methods, comma-separated")] = "",
    data: Annotated[str, typer.Option(help="use another of the paper's data sets: mnist, cifar10")] = "",
    method: Annotated[str, typer.Option(help="a further method for each table, such as package.module:Class")] = "",
    seeds: Seeds = 1,
    out: Annotated[Path, typer.Option("--out", help="the folder of runs and results")] = Path("runs/reproduce"),
    jobs: Jobs = None,
    data_dir: DataDir = None,
    plan_only: PlanOnly = False,
    list_all: Annotated[bool, typer.Option("--list", help="list all tables and figures")] = False,
    as_json: Json = False,
) -> None:
    """Run the paper's tables and figures, and print our numbers next to the paper's; finished cells are kept."""
    from rofl.cli.progress import cells_bar
    from rofl.cli.reproduce_tables import print_cost, result_rows, result_table
    from rofl.report import write_paper_page
    from rofl.reproduce import PAPER_TABLES, make_plan, reproduce, write_markdown

    if list_all:
        about = {
            table.name: f"{table.where}: {table.about} ({len(table.cells)} numbers)" for table in PAPER_TABLES.values()
        }
        print_listing(about, "table or figure", as_json)
        return
    plan = make_plan(name, scale, seeds, out, cells, data, method)
    print_cost(plan, as_json=plan_only and as_json)
    if plan_only:
        return
    with cells_bar() as on_progress:
        results = reproduce(plan, jobs=jobs, data_dir=data_dir, on_progress=on_progress)
    markdown, page = write_markdown(plan, results), write_paper_page(results, plan.out / f"{plan.name}.html")
    if as_json:
        print_json({result.table.name: [asdict(row) for row in result_rows(result)] for result in results})
    else:
        for result in results:
            stdout.print(result_table(result))
        print_message(f"As Markdown: {markdown}\nThe page: {page}")
    problems = dict.fromkeys(problem for result in results for problem in result.problems)
    if problems:
        raise UserError(f"Some cells could not run: {'; '.join(problems)}")
