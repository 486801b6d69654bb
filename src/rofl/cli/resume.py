"""`rofl resume`: continue an interrupted run."""

from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import app
from rofl.cli.options import DataDir, Json, Log, Workers


@app.command("resume", epilog="Example: rofl resume runs/digits-rofl-1")
def resume_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run that was interrupted")],
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run; it ends as if nothing had happened."""
    from rofl.cli.progress import ProgressListener, check_log, follow_run
    from rofl.cli.resolve import decode_user_images
    from rofl.cli.tables import print_run
    from rofl.report import write_report
    from rofl.training.run_dir import RunDir
    from rofl.training.runner import resume

    experiment = RunDir(folder).read_experiment()
    check_log(log)
    if not RunDir(folder).is_finished():  # a finished run needs its data no more
        decode_user_images(experiment)
    with ProgressListener() as progress, follow_run(progress, experiment, folder, log) as listener:
        finished = resume(folder, workers=workers, data_dir=data_dir, listener=listener)
    write_report([folder], folder / "report.html", data_dir)
    print_run(finished, as_json)
