"""`rofl benchmark`: methods against one another at equal budget."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from rofl.cli.app import app, print_json, print_listing, print_message, stdout
from rofl.cli.options import DataDir, Jobs, Json, PlanOnly
from rofl.errors import UserError

ScaleName = Literal["tiny", "lite", "medium", "paper"]  # as rofl.reproduce.Scale, which would import torch


@app.command("benchmark", epilog="Example: rofl benchmark noise --cells plain,fedcorr,rofl --seeds 3")
def benchmark_command(
    name: Annotated[str, typer.Argument(help="noise, clients or all; see --list")] = "all",
    scale: Annotated[
        ScaleName,
        typer.Option(help="tiny: digits; lite: images in minutes; medium: in hours; paper: the paper's network"),
    ] = "tiny",
    data: Annotated[str, typer.Option(help="cifar10 or mnist; tiny is on the embedded digits")] = "",
    cells: Annotated[str, typer.Option(help="only these methods and settings, comma-separated; see --list")] = "",
    method: Annotated[
        list[str] | None, typer.Option(help="a further method, such as package.module:Class; repeatable")
    ] = None,
    seeds: Annotated[int, typer.Option(min=0, help="runs of each cell; 0: 5 at tiny, 3 at lite, else 1")] = 0,
    out: Annotated[Path, typer.Option("--out", help="the folder of runs and results")] = Path("runs/benchmark"),
    jobs: Jobs = None,
    on: Annotated[
        str,
        typer.Option(
            metavar="RAY", help="run cells on Ray: `ray`, or ray://HOST:PORT. It pickles: use trusted nodes only"
        ),
    ] = "",
    data_dir: DataDir = None,
    plan_only: PlanOnly = False,
    list_all: Annotated[bool, typer.Option("--list", help="list benchmarks, settings and methods")] = False,
    as_json: Json = False,
) -> None:
    """Compare methods at equal gradient steps and at equal time, over settings and seeds; finished cells are kept."""
    from rofl.cli.progress import cells_bar
    from rofl.cli.reproduce_tables import benchmark_listing, print_cost, ranking_output
    from rofl.report import write_benchmark_page, write_ranking_picture
    from rofl.reproduce import benchmark, make_benchmark_plan
    from rofl.reproduce.benchmark_files import benchmark_rows_json, write_benchmark_files

    if list_all:
        print_listing(benchmark_listing(), "name", as_json)
        return
    words = [word.strip() for word in cells.split(",") if word.strip()]
    plan = make_benchmark_plan(name, scale, data, [*words, *(method or [])], seeds, out)
    if on:
        print_message(f"{plan.name} at scale {plan.scale}: {len(plan.experiments())} runs on {on}.")
    else:
        print_cost(plan, as_json=plan_only and as_json)
    if plan_only:
        return
    with cells_bar() as on_progress:
        board = benchmark(plan, jobs=jobs, on=on, data_dir=data_dir, on_progress=on_progress)
    markdown, page = write_benchmark_files(board), write_benchmark_page(board, plan.out / f"{plan.name}.html")
    if board.steps_ranking.methods:
        title = "Methods at equal gradient steps"
        write_ranking_picture(board.steps_ranking, title, plan.out / f"{plan.name}.svg")
    if as_json:
        print_json([asdict(row) for row in benchmark_rows_json(board)])
    else:
        stdout.print(ranking_output(board))
        print_message(f"As Markdown: {markdown}\nThe page: {page}")
    if board.by_steps.problems:
        raise UserError(f"Some cells could not run: {'; '.join(board.by_steps.problems)}")
