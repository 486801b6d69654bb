"""The demo: two runs, and what it draws of them in the terminal."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.columns import Columns

from rofl.cli.app import stderr, stdout
from rofl.cli.progress import ProgressListener
from rofl.cli.runs import write_page
from rofl.cli.tables import comparison, comparison_table
from rofl.config.presets import preset
from rofl.data.federated import load_federated
from rofl.report.terminal import chart, thumbnail
from rofl.training.run import Run, run
from rofl.training.run_dir import RunDir


def show_demo(out: Path, workers: int | None, as_json: bool) -> None:
    """Plain FedAvg against rofl, into a folder."""
    stderr.print("Handwritten digits at 20 clients; 40 % of the labels are wrong. Plain FedAvg against rofl.")
    runs = []
    with ProgressListener(stderr) as watch:
        for name in ("plain", "rofl"):
            chosen = preset("digits", method=name, noise__ratio=0.4)
            watch.begin(chosen)
            RunDir(out / name).remove()  # of an earlier demo
            runs.append(run(chosen, out / name, workers=workers, listener=watch))
    page = write_page(runs, out, None)
    if as_json:
        stdout.print_json(json.dumps({"folder": str(out), "methods": comparison(runs)}))
        return
    stdout.print(chart_of(runs, width=min(stdout.width, 100)), markup=False, highlight=False)
    stdout.print(comparison_table(runs))
    stdout.print("The ten labels that look most wrong (given -> suggested):")
    stdout.print(Columns(suspect_cards(runs[-1], 10), padding=(0, 2)), highlight=False)
    stderr.print(f"Each client's own list: {out / 'rofl' / 'suspects'}", markup=False, highlight=False)
    stderr.print(f"The page: {page}", markup=False, highlight=False)


def chart_of(runs: Sequence[Run], width: int) -> str:
    """Accuracy per round, one curve per run."""
    curves = {
        run.summary.method: [(record.round, record.accuracy) for record in run.history if record.accuracy is not None]
        for run in runs
    }
    return chart(curves, width=width, height=14)


def suspect_cards(run: Run, count: int) -> list[str]:
    """The most suspicious samples as small pictures with a line of text each."""
    federated = load_federated(run.experiment.split)
    cards = []
    for row in RunDir(run.folder).read_suspects()[:count]:
        sample = row.row
        picture = thumbnail(federated.images.train[sample])
        cards.append(f"{picture}\n{row.given} -> {row.suggested}  client {row.client}")
    return cards
