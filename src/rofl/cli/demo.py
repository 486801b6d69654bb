"""The demo: two runs, and what it draws of them in the terminal."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.columns import Columns

from rofl.cli.app import result, talk
from rofl.cli.progress import Watch
from rofl.cli.runs import write_page
from rofl.cli.tables import comparison, comparison_table
from rofl.experiment import Run, run
from rofl.presets import preset
from rofl.report.terminal import chart, thumbnail
from rofl.run_folder import RunFolder
from rofl.scene import prepare


def show_demo(out: Path, workers: int | None, as_json: bool) -> None:
    """Plain FedAvg against rofl, into a folder."""
    talk.print("Handwritten digits at 20 clients; 40 % of the labels are wrong. Plain FedAvg against rofl.")
    runs = []
    with Watch(talk) as watch:
        for name in ("plain", "rofl"):
            chosen = preset("digits", method=name, noise__ratio=0.4)
            watch.begin(chosen)
            runs.append(run(chosen, out / name, workers=workers, overwrite=True, listener=watch))
    page = write_page(runs, out, None)
    if as_json:
        result.print_json(json.dumps({"folder": str(out), "methods": comparison(runs)}))
        return
    result.print(chart_of(runs, width=min(result.width, 100)), markup=False, highlight=False)
    result.print(comparison_table(runs))
    result.print("The ten labels that look most wrong (given -> suggested):")
    result.print(Columns(suspect_cards(runs[-1], 10), padding=(0, 2)), highlight=False)
    talk.print(f"Each client's own list: {out / 'rofl' / 'suspects'}", markup=False, highlight=False)
    talk.print(f"The page: {page}", markup=False, highlight=False)


def chart_of(runs: Sequence[Run], width: int) -> str:
    """Accuracy per round, one curve per run."""
    curves = {
        run.summary["method"]: [
            (entry["round"], entry["accuracy"]) for entry in run.history if entry["accuracy"] is not None
        ]
        for run in runs
    }
    return chart(curves, width=width, height=14)


def suspect_cards(run: Run, count: int) -> list[str]:
    """The most suspicious samples as small pictures with a line of text each."""
    scene = prepare(run.experiment)
    cards = []
    for row in RunFolder(run.folder).read_suspects()[:count]:
        sample = int(row["sample"])
        picture = thumbnail(scene.images.train[sample])
        cards.append(f"{picture}\n{row['given']} -> {row['suggested']}  client {row['client']}")
    return cards
