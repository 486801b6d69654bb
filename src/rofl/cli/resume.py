"""`rofl resume`: continue an interrupted run."""

from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import app, print_message, print_warning
from rofl.cli.options import DataDir, Json, Log, Workers


@app.command("resume", epilog="Example: rofl resume runs/digits-rofl-1")
def resume_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run that was interrupted")],
    workers: Workers = None,
    data_dir: DataDir = None,
    log: Log = None,
    as_json: Json = False,
) -> None:
    """Continue an interrupted run, with the same result as without the interruption."""
    from rofl import tracking
    from rofl.cli.progress import ProgressListener, check_log, follow_run
    from rofl.cli.resolve import decode_user_images
    from rofl.cli.tables import print_run
    from rofl.report import Audience, write_report
    from rofl.training.run_dir import RunDir
    from rofl.training.runner import resume

    experiment = RunDir(folder).read_experiment()
    check_log(log)
    if RunDir(folder).is_finished():  # it needs its data no more
        print_message(f"The run in {folder} is already finished: nothing is trained, and its page is written again.")
        with tracking.follow(log or [], folder, print_warning):
            finished = resume(folder)
        write_report([folder], folder / "report.html", data_dir, Audience(server=RunDir(folder).is_served))
        print_run(finished, as_json)
        return
    decode_user_images(experiment)
    with ProgressListener() as progress, follow_run(progress, experiment, folder, log) as listener:
        finished = resume(folder, workers=workers, data_dir=data_dir, listener=listener)
    write_report([folder], folder / "report.html", data_dir)
    print_run(finished, as_json)
