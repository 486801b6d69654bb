"""`rofl compare`: several methods and seeds in one table."""

from dataclasses import asdict
from typing import Annotated

import typer

from rofl.cli.app import app, print_json, print_message, stdout
from rofl.cli.options import (
    Data,
    DataDir,
    Json,
    Labels,
    Log,
    Out,
    Quick,
    Seeds,
    Sets,
    Test,
    Thorough,
    What,
    Workers,
    effort,
)


@app.command("compare", epilog="Example: rofl compare digits --methods plain,rofl --seeds 3 --set noise.ratio=0.6")
def compare_command(
    what: What = "",
    methods: Annotated[str, typer.Option(help="comma-separated names")] = "plain,rofl",
    seeds: Seeds = 3,
    sets: Sets = None,
    data: Data = None,
    test: Test = None,
    labels: Labels = None,
    quick: Quick = False,
    thorough: Thorough = False,
    out: Out = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Run several methods and seeds on the same data, and print one table; finished runs in the folder are kept."""
    from rofl.cli.progress import ProgressListener, check_log, follow_run
    from rofl.cli.resolve import ExperimentOptions, print_estimate, resolve_with_size
    from rofl.cli.tables import comparison_table
    from rofl.methods import METHODS
    from rofl.report import write_report
    from rofl.training.compare_runs import compare

    names = [name.strip() for name in methods.split(",") if name.strip()]
    for name in names:
        METHODS.find(name)
    check_log(log)
    level = effort(quick, thorough, data)
    resolved = [
        resolve_with_size(
            ExperimentOptions(what, sets, name, seed, None, data, test, labels, level),
            quiet=(seed, name) != (0, names[0]),
        )
        for seed in range(seeds)
        for name in names
    ]
    experiments = [experiment for experiment, _ in resolved]
    print_estimate(experiments, resolved[0][1] if resolved else None, workers)
    with ProgressListener() as progress:
        comparison = compare(
            experiments,
            out,
            workers=workers,
            data_dir=data_dir,
            follow=lambda experiment, folder: follow_run(progress, experiment, folder, log),
        )
    page = write_report([run.folder for run in comparison.runs], comparison.folder / "report.html", data_dir)
    if as_json:
        print_json({"folder": str(comparison.folder), "methods": [asdict(row) for row in comparison.rows]})
    else:
        stdout.print(comparison_table(comparison))
        print_message(f"The page: {page}")
