"""What commands do with runs: train several, write their page, show the outcome."""

import json
from pathlib import Path

from rofl import report
from rofl.cli.app import stdout
from rofl.cli.following import followed
from rofl.cli.progress import ProgressListener
from rofl.cli.tables import summary_table
from rofl.config.schema import Experiment
from rofl.errors import UserError
from rofl.training.run import Run, resume, run
from rofl.training.run_dir import RunDir


def run_all(
    plan: list[Experiment],
    folder: Path,
    watch: ProgressListener,
    workers: int | None,
    data_dir: Path | None,
    log: list[str] | None,
) -> list[Run]:
    """Run what is not there yet; go on with what is."""
    runs = []
    for chosen in plan:
        place = RunDir(folder / f"{chosen.method_name}-s{chosen.seed}")
        if place.exists() and place.read_experiment() != chosen:
            raise UserError(f"{place.path} holds a run with other settings.", "another --out")
        with followed(watch, chosen, place.path, log) as listener:
            if place.exists():
                runs.append(resume(place.path, workers=workers, data_dir=data_dir, listener=listener))
            else:
                runs.append(run(chosen, place.path, workers=workers, data_dir=data_dir, listener=listener))
    return runs


def write_page(runs: list[Run], folder: Path, data_dir: Path | None) -> Path:
    """report.html of these runs."""
    return report.write_report([run.folder for run in runs], folder / "report.html", data_dir)


def show(done: Run, as_json: bool) -> None:
    """The outcome of a run, on stdout."""
    if as_json:
        stdout.print_json(json.dumps({**done.summary.model_dump(), "folder": str(done.folder)}))
    else:
        stdout.print(summary_table(done))
