"""`rofl run`: train once.

Commands import torch and other slow modules when they are called, so that --help and mistyped options respond at once.
"""

import typer

from rofl.cli.app import app, print_message
from rofl.cli.options import (
    Data,
    DataDir,
    Dp,
    Json,
    Labels,
    Log,
    MethodName,
    Out,
    Quick,
    Seed,
    Sets,
    Test,
    Thorough,
    What,
    Workers,
    effort,
)

_WHAT_TO_DO = """Nothing was named to train on. For example:
  rofl run --data PATH     your images, table or texts; rofl data check PATH checks them first
  rofl run digits          a small data set that comes with the package, half a minute; rofl presets lists all
  rofl demo                two methods side by side on wrong labels, a minute"""


@app.command("run", epilog="Example: rofl run digits --set noise.ratio=0.4 --method plain --seed 1")
def run_command(
    what: What = "",
    sets: Sets = None,
    method: MethodName = None,
    seed: Seed = None,
    data: Data = None,
    test: Test = None,
    labels: Labels = None,
    quick: Quick = False,
    thorough: Thorough = False,
    dp: Dp = None,
    out: Out = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Train once, and write a run folder with a report page."""
    if not (what or data or sets):
        print_message(_WHAT_TO_DO)
        raise typer.Exit(2)
    from rofl.cli.progress import ProgressListener, check_log, follow_run
    from rofl.cli.resolve import ExperimentOptions, print_estimate, resolve_with_size
    from rofl.cli.tables import print_run
    from rofl.report import write_report
    from rofl.training.runner import check_unused, next_run_dir, run

    check_log(log)
    if out is not None:  # before images are decoded, which may take minutes
        check_unused(out)
    options = ExperimentOptions(what, sets, method, seed, dp, data, test, labels, effort(quick, thorough, data))
    experiment, size = resolve_with_size(options)
    print_estimate([experiment], size, workers)
    folder = out or next_run_dir(experiment)
    with ProgressListener() as progress, follow_run(progress, experiment, folder, log) as listener:
        finished = run(experiment, folder, workers=workers, data_dir=data_dir, listener=listener)
    write_report([folder], folder / "report.html", data_dir)
    print_run(finished, as_json)
