"""Finished runs and comparisons as tables for the terminal."""

import shlex
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from rofl.audit.noise_estimation import interval_text
from rofl.audit.result import ListQuality, NoiseEstimate
from rofl.audit.suspects import Detection
from rofl.cli.app import print_json, stdout
from rofl.training.compare_runs import Comparison
from rofl.training.records import LAST_ROUNDS, PrivacyRecord, RunSummary
from rofl.training.runner import Run


def print_run(run: Run, as_json: bool) -> None:
    """Print the summary of a finished run on stdout, as a table or as JSON."""
    if as_json:
        print_json({**run.summary.model_dump(), "folder": str(run.folder)})
    else:
        stdout.print(summary_table(run))


def summary_table(run: Run) -> Table:
    """Return the summary of a finished run as a table."""
    summary = run.summary
    given = ", against labels as given" if run.experiment.data.name == "own" else ""
    mean = mean_of_rounds(summary.rounds_run or summary.rounds)
    saved = {"saved model": model_text(summary)}
    rows = {
        **(saved if summary.selected == "best" else {}),  # first, since it is the one that is used
        "test accuracy": f"{percent_text(summary.test_accuracy)}, {mean}{given}",
        "best round": percent_text(summary.best_accuracy),
        **saved,
        **_label_rows(run),
        "time": f"{summary.seconds:.1f} s, {summary.seconds_per_round:.2f} s a round",
        "traffic": f"{summary.bytes_up / 1e6:.1f} MB up, {summary.bytes_down / 1e6:.1f} MB down, "
        f"{100 * summary.centroid_share:.2f} % of it centroids",
        "digest": summary.digest[:16],
        "folder": escape(str(run.folder)),
        **_made_paths(run.folder),
    }
    if summary.privacy:
        rows["privacy"] = privacy_text(summary.privacy)
    if summary.stopped:
        rows["stopped early"] = summary.stopped
    for event in summary.warnings:
        rows[f"warning, {event.sign}"] = escape(event.message)  # it may hold names of classes
    if summary.note:
        rows["note"] = escape(summary.note)  # it may hold names of files
    return facts_table(f"{summary.name}, {summary.method}", rows)


def comparison_table(comparison: Comparison) -> Table:
    """Return the methods of a comparison, one per row, with means and spread over seeds."""
    rounds = min(run.summary.rounds_run or run.summary.rounds for run in comparison.runs)
    table = Table(title=f"test accuracy, {mean_of_rounds(rounds)}", title_justify="left")
    for column in ("method", "seeds", "accuracy", "spread", "precision", "recall", "s a round"):
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in comparison.rows:
        table.add_row(
            row.method,
            str(row.seeds),
            percent_text(row.accuracy),
            f"± {row.spread:.2f}" if row.seeds > 1 else "",
            share_text(row.precision),
            share_text(row.recall),
            f"{row.seconds_per_round:.2f}",
        )
    return table


def facts_table(title: str, rows: dict[str, str]) -> Table:
    """Return a table of names and values, without a header."""
    table = Table(title=title, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    return table


def _label_rows(run: Run) -> dict[str, str]:
    """Return rows about wrong labels: compared with the true labels if known, otherwise with bounds."""
    summary = run.summary
    looks_wrong = {"labels that look wrong": estimate_text(summary.estimated)}
    if summary.noise.achieved is None:
        return {**looks_wrong, "labels that are wrong": escape(bounds_text(summary.estimated)), **_missed(summary)}
    return {
        "labels": f"noise {run.experiment.noise.text}; {100 * summary.noise.achieved:.1f} % are wrong",
        **looks_wrong,
        "wrong labels found": detection_text(summary.audit or summary.detection),
    }


def _made_paths(folder: Path) -> dict[str, str]:
    """Return the existing files of a run that users open, and the commands to use its model, by name."""
    pages = {"page": folder / "report.html", "lists of suspects": folder / "suspects"}
    made = {name: escape(str(path)) for name, path in pages.items() if path.exists()}
    if (folder / "model.json").is_file():
        made["use the model"] = escape(f"rofl predict {shlex.quote(str(folder))} PATH")
        made["in Python"] = escape(f"rofl.load({str(folder)!r})")
    return made


def percent_text(value: float | None) -> str:
    """Return a percentage with two digits, or a text if it was not measured."""
    return "not measured" if value is None else f"{value:.2f} %"


def mean_of_rounds(rounds: int) -> str:
    """Return which rounds the test accuracy of a run is the mean of.

    >>> [mean_of_rounds(rounds) for rounds in (40, 8, 1)]
    ['mean of the last 10 rounds', 'mean of all 8 rounds', 'after one round']
    """
    if rounds == 1:
        return "after one round"
    return f"mean of the last {LAST_ROUNDS} rounds" if rounds > LAST_ROUNDS else f"mean of all {rounds} rounds"


def share_text(value: float | None) -> str:
    """Return a share with three digits, or a dash if there was nothing to count."""
    return "-" if value is None else f"{value:.3f}"


def model_text(summary: RunSummary) -> str:
    """Return the round of the saved model and its accuracy."""
    if summary.selected_round is None:
        return "that of the last round"
    accuracy = "" if summary.model_accuracy is None else f", {summary.model_accuracy:.2f} %"
    reason = ": the best agreement with held-out labels" if summary.selected == "best" else ", the last"
    return f"of round {summary.selected_round}{accuracy}{reason}"


def estimate_text(estimated: NoiseEstimate | None) -> str:
    """Return the share of flagged labels, over all clients and at the extremes; a dash for some runs of 0.1."""
    if estimated is None:
        return "-"
    shares = [100 * share for share in estimated.clients.values()]
    if not shares:  # sums were masked
        return f"{100 * estimated.ratio:.1f} % over all clients"
    if len(shares) == 1:
        return f"{100 * estimated.ratio:.1f} %"
    return f"{100 * estimated.ratio:.1f} %; {min(shares):.1f} to {max(shares):.1f} % at single clients"


def bounds_text(estimated: NoiseEstimate | None) -> str:
    """Return the expected number of wrong labels, and the bounds of the clients with the fewest and the most.

    For data without known true labels. Runs of earlier versions have bounds only, or nothing.
    """
    if estimated is None or not estimated.intervals:
        return "not known"
    known = estimated.expected_ratio is not None and not estimated.is_unsure
    expected = f"about {100 * (estimated.expected_ratio or 0):.1f} %" if known else "not known"
    bounds = sorted(estimated.intervals.items(), key=lambda item: (item[1][1], item[1][0]))
    if len(bounds) == 1:
        return f"{expected}; {interval_text(bounds[0][1])}"
    (least, lowest), (most, highest) = bounds[0], bounds[-1]
    return f"{expected}; {interval_text(lowest)} at {_client(least)}, {interval_text(highest)} at {_client(most)}"


def _client(name: str) -> str:
    """Return a client's name, or "client" and its number."""
    return f"client {name}" if name.isdecimal() else name


def _missed(summary: RunSummary) -> dict[str, str]:
    """Return a row about wrong labels that are not flagged, if they are a tenth or more of those expected."""
    estimated = summary.estimated
    if estimated is None or estimated.expected_ratio is None or estimated.expected_unflagged is None:
        return {}
    if estimated.expected_unflagged < max(0.005, 0.1 * estimated.expected_ratio):
        return {}
    if estimated.is_unsure:
        return {
            "wrong, not flagged": "not known: the model is unsure of most samples, and flags only what it is sure of"
        }
    share = f"about {100 * estimated.expected_unflagged:.1f} %"
    return {"wrong, not flagged": f"{share}, by the scores: the lists go on below the flagged labels, by score"}


def detection_text(detection: Detection | ListQuality | None) -> str:
    """Return precision and recall, or a text if they were not measured."""
    if detection is None:
        return "not counted"
    return f"precision {share_text(detection.precision)}, recall {share_text(detection.recall)}"


def privacy_text(privacy: PrivacyRecord) -> str:
    """Return epsilon and delta of a run, or the reason why there is no guarantee."""
    if privacy.epsilon is None:
        return "with noise; the coordinator knows epsilon" if privacy.noise else "clipped, and no guarantee"
    return f"epsilon {privacy.epsilon:.3g} at delta {privacy.delta:g} for clients, if only sums are visible"
