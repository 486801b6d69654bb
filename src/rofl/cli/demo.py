"""What the demo draws in the terminal."""

from collections.abc import Sequence

from rofl.experiment import Run
from rofl.report.terminal import chart, thumbnail
from rofl.run_folder import RunFolder
from rofl.scene import prepare


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
