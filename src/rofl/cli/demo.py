"""`rofl demo`: a first look, with pictures in the terminal."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rofl.cli.app import app, print_json, print_message, stdout
from rofl.cli.options import Json, Out, Workers

if TYPE_CHECKING:
    from rofl.training.runner import Run

_SUSPECTS = 10  # shown as pictures


@app.command("demo", epilog="Example: rofl demo")
def demo_command(out: Out = Path("runs/demo"), workers: Workers = None, as_json: Json = False) -> None:
    """Train plain FedAvg and rofl at 20 clients with 40 % wrong labels, and show both: about a minute."""
    from rich.columns import Columns

    from rofl.cli.progress import ProgressListener
    from rofl.cli.tables import comparison_table
    from rofl.config.presets import preset
    from rofl.report import write_report
    from rofl.training.compare_runs import Comparison
    from rofl.training.run_dir import RunDir
    from rofl.training.runner import run

    folder = out or Path("runs/demo")
    print_message("Handwritten digits at 20 clients; 40 % of the labels are wrong. Plain FedAvg against rofl.")
    runs = []
    with ProgressListener() as progress:
        for name in ("plain", "rofl"):
            experiment = preset("digits", method=name, noise__ratio=0.4)
            progress.begin(experiment)
            RunDir(folder / name).remove()  # of an earlier demo
            runs.append(run(experiment, folder / name, workers=workers, listener=progress))
    comparison = Comparison(folder, runs)
    page = write_report([each.folder for each in runs], folder / "report.html")
    if as_json:
        print_json({"folder": str(folder), "methods": [asdict(row) for row in comparison.rows]})
        return
    stdout.print(_accuracy_chart(runs), markup=False, highlight=False)
    stdout.print(comparison_table(comparison))
    stdout.print(f"The {_SUSPECTS} labels that look most wrong (given -> suggested):", highlight=False)
    stdout.print(Columns(_suspect_pictures(runs[-1]), padding=(0, 2)), highlight=False)
    print_message(f"Each client's own list: {folder / 'rofl' / 'suspects'}")
    print_message(f"The page: {page}")


def _accuracy_chart(runs: "list[Run]") -> str:
    """Return a chart of the accuracy per round, with one curve per run."""
    from rofl.report.terminal import chart

    curves = {
        run.summary.method: [(record.round, record.accuracy) for record in run.history if record.accuracy is not None]
        for run in runs
    }
    return chart(curves, width=min(stdout.width, 100), height=14)


def _suspect_pictures(run: "Run") -> list[str]:
    """Return the most suspicious samples of a run as small pictures, each with a line of text."""
    from rofl.data.federated import load_federated
    from rofl.report.terminal import thumbnail
    from rofl.training.run_dir import RunDir

    images = load_federated(run.experiment.split).images.train
    return [
        f"{thumbnail(images[suspect.row])}\n{suspect.given} -> {suspect.suggested}  client {suspect.client}"
        for suspect in RunDir(run.folder).audit.read_suspects()[:_SUSPECTS]
    ]
