"""`rofl evaluate`: evaluates the model of a run on labelled data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import app, print_json, print_message, print_warning, stdout
from rofl.cli.options import DataDir, FinishedRun, Json


@app.command("evaluate", epilog="Example: rofl evaluate runs/photos test-photos --out evaluation.html")
def evaluate_command(
    run: FinishedRun,
    path: Annotated[
        Path | None, typer.Argument(metavar="[PATH]", help="labelled data; the run's own test part if omitted")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="HTML", help="write a page")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run's model on labelled data: accuracy, per-class metrics, confusions, calibration, and a page."""
    from rofl.cli.evaluation_tables import class_table, evaluation_lines
    from rofl.cli.progress import decoding_bar
    from rofl.data.atomic import check_place
    from rofl.report.evaluation_page import write_evaluation_page
    from rofl.training.saved_model.evaluate_data import evaluate_data

    check_place(out)
    with decoding_bar(verb="predicting", noun="samples") as progress:
        evaluation = evaluate_data(run, path, data_dir=data_dir, progress=progress)
    for name, reason in evaluation.unreadable.items():
        print_warning(f"left out, since it cannot be read: {name} ({reason})")
    if as_json:
        print_json(json.loads(evaluation.to_json()))
    else:
        stdout.print(class_table(evaluation))
        for line in evaluation_lines(evaluation):
            stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    if out is not None:
        print_message(f"The page: {write_evaluation_page(evaluation, out)}")
