"""Results as tables for the terminal."""

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

from rich.markup import escape
from rich.table import Table

from rofl.audit.detection import Detection
from rofl.audit.result import NoiseEstimate
from rofl.training.records import PrivacyRecord, RunSummary
from rofl.training.run import Run


def summary_table(run: Run) -> Table:
    """The outcome of one run."""
    summary = run.summary
    table = Table(title=f"{summary.name}, {summary.method}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    rows = {
        "test accuracy": f"{_percent(summary.test_accuracy)}, mean of the last 10 rounds"
        + (", against labels as given" if run.experiment.data.name == "own" else ""),
        "best round": _percent(summary.best_accuracy),
        "labels": labels_text(run.experiment.noise.text, summary.noise.achieved),
        "labels that look wrong": estimate_text(summary.estimated),
        "wrong labels found": detection_text(summary.detection),
        "time": f"{summary.seconds:.1f} s, {summary.seconds_per_round:.2f} s a round",
        "traffic": f"{summary.bytes_up / 1e6:.1f} MB up, {summary.bytes_down / 1e6:.1f} MB down, "
        f"{100 * summary.centroid_share:.2f} % of it centroids",
        "digest": summary.digest[:16],
        "folder": str(run.folder),
    }
    if summary.privacy:
        rows["privacy"] = privacy_text(summary.privacy)
    if summary.note:
        rows["note"] = escape(summary.note)  # it may hold names of files
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def privacy_text(privacy: PrivacyRecord) -> str:
    """How well clients are hidden."""
    if privacy.epsilon is None:
        return "with noise; the coordinator knows epsilon" if privacy.noise else "clipped, and no guarantee"
    return f"epsilon {privacy.epsilon:.3g} at delta {privacy.delta:g} for clients, where nobody sees single votes"


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2f} %"


def comparison_table(runs: Sequence[Run]) -> Table:
    """Methods side by side, mean and spread over seeds."""
    table = Table(title="test accuracy, mean of the last 10 rounds", title_justify="left")
    for column in ("method", "seeds", "accuracy", "spread", "precision", "recall", "s a round"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in comparison(runs):
        table.add_row(
            row["method"],
            str(row["seeds"]),
            f"{row['accuracy']:.2f} %",
            f"± {row['spread']:.2f}" if row["seeds"] > 1 else "",
            share(row["precision"]),
            share(row["recall"]),
            f"{row['seconds_per_round']:.2f}",
        )
    return table


def comparison(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """One row per method: means over its runs, and the sample standard deviation of the accuracy."""
    methods = dict.fromkeys(run.summary.method for run in runs)
    return [_row(method, [run.summary for run in runs if run.summary.method == method]) for method in methods]


def _row(method: str, summaries: Sequence[RunSummary]) -> dict[str, Any]:
    accuracies = [summary.test_accuracy for summary in summaries if summary.test_accuracy is not None]
    return {
        "method": method,
        "seeds": len(summaries),
        "accuracy": mean(accuracies),
        "spread": stdev(accuracies) if len(accuracies) > 1 else 0.0,
        "precision": _mean([summary.precision for summary in summaries]),
        "recall": _mean([summary.recall for summary in summaries]),
        "seconds_per_round": mean(summary.seconds_per_round for summary in summaries),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def share(value: float | None) -> str:
    """A share with three digits, or a dash where there was nothing to count."""
    return "-" if value is None else f"{value:.3f}"


def estimate_text(estimated: NoiseEstimate | None) -> str:
    """The share of flagged labels, of all clients and the extremes; runs of older versions have none."""
    if estimated is None:
        return "-"
    shares = [100 * share for share in estimated.clients.values()]
    return f"{100 * estimated.ratio:.1f} %; {min(shares):.1f} to {max(shares):.1f} % at single clients"


def labels_text(noise: str, achieved: float | None) -> str:
    """What is known about the labels."""
    if achieved is None:
        return "nobody knows which are wrong"
    return f"noise {noise}; {100 * achieved:.1f} % are wrong"


def detection_text(found: Detection | None) -> str:
    """Precision and recall in words."""
    if found is None:
        return "not to be counted, since the truth is not known"
    return f"precision {share(found.precision)}, recall {share(found.recall)}"
