"""The result of an audit for the terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text
from torch import Tensor

from rofl.audit.correction import Correction
from rofl.audit.label_tools import Tool
from rofl.audit.label_tools.export_suspects import Export
from rofl.audit.noise_estimation import interval_text, scores_are_unsure
from rofl.audit.result import AuditResult
from rofl.audit.suspect_list import SuspectRow
from rofl.cli.tables import share_text
from rofl.data.label_csv import Decision
from rofl.data.user.names import plural

_CLIENTS = 20  # that are listed; --json has all


def clients_table(result: AuditResult) -> Table:
    """Return the samples and suspects of each client, with the largest share of suspects first.

    The expected number of wrong labels is the sum of the scores, if the model is sure enough of the samples.
    """
    federated, flags, scores = result.federated, result.suspects.flagged, result.suspects.score
    shares = [float(flags[rows].sum()) / max(len(rows), 1) for _, rows in federated.client_views]
    order = sorted(range(len(shares)), key=lambda client: -shares[client])
    table = Table(title="labels that look wrong", title_justify="left")
    for name in ("client", "samples", "suspects", "share", "expected", "bounds"):
        table.add_column(name, justify="left" if name == "client" else "right", no_wrap=name == "bounds")
    intervals = result.metrics().estimated.intervals
    for client in order[:_CLIENTS]:
        name, rows = federated.client_views[client]
        table.add_row(Text(name), *_counts_row(flags[rows], scores[rows]), interval_text(intervals[name]))
    if len(order) > _CLIENTS:
        table.add_row(f"and {len(order) - _CLIENTS} more")
    table.add_section()
    table.add_row("all", *_counts_row(flags, scores))
    return table


def _counts_row(flags: Tensor, scores: Tensor) -> tuple[str, ...]:
    """Return four cells for samples with these flags and scores, (n,) each."""
    samples, flagged = len(flags), int(flags.sum())
    unsure = scores_are_unsure(float(scores[~flags].sum()), samples - flagged)
    expected = "unsure" if unsure else f"{float(scores.sum()):.0f}"
    return str(samples), str(flagged), f"{100 * flagged / max(samples, 1):.1f} %", expected


def audit_lines(result: AuditResult, decided: Sequence[Decision]) -> list[str]:
    """Return lines about the quality of the lists: against the true labels if known, and against the decisions."""
    lines, metrics = [], result.metrics()
    if metrics.estimated.ratio > 0.5:
        lines.append("More than half of the labels look wrong: the model is probably too weak to judge them.")
    unflagged = float(result.suspects.score[~result.suspects.flagged].sum())
    if metrics.estimated.is_unsure:
        lines.append("The model is unsure of most samples: its scores do not tell how many labels are wrong.")
    elif unflagged >= 1:
        lines.append(
            f"About {unflagged:.0f} of the labels that are not flagged are expected to be wrong, too: "
            "the lists go on below the flagged ones, by score."
        )
    quality = metrics.audit
    if quality is not None:
        lines.append(
            f"by the truth: precision {share_text(quality.precision)}, recall {share_text(quality.recall)}, "
            f"average precision {share_text(quality.average_precision)}, right suggestions "
            f"{share_text(quality.suggestion_accuracy)}"
        )
    if decided:
        counts = count_decisions(decided)
        lines.append(f"by people: {counts['wrong']} labels wrong, {counts['right']} right")
    return lines


def correction_lines(correction: Correction, path: Path, min_confidence: float, decided_only: bool) -> list[str]:
    """Return lines about a file of corrected labels: replaced labels, kept labels, and expected wrong labels.

    Args:
        correction: the corrected labels.
        path: the file.
        min_confidence: the least probability of a suggestion that replaced a label.
        decided_only: whether only decisions were used.
    """
    verb = "is" if correction.changed == 1 else "are"
    lines = [f"{plural(correction.changed, 'label')} {verb} changed in {path}"]
    if correction.left:
        probable = f"no suggestion is right with a probability of {min_confidence:g} or more (--min-confidence)"
        reason = "nobody decided about them" if decided_only else probable
        lines.append(f"{plural(correction.left, 'label')} that look wrong stay as given: {reason}")
    before, after = correction.wrong_before, correction.wrong_after
    lines.append(f"Expected wrong labels of {len(correction.labels)}: {before:.0f} before, {after:.0f} after")
    return lines


def export_lines(tool: Tool, written: Export) -> list[str]:
    """Return lines about an export for a labelling tool, with the next step."""
    folder, samples = written.path.parent, plural(written.samples, "sample")
    files = (
        f"let Label Studio serve local files below {folder.absolute().parent}, " if (folder / "images").exists() else ""
    )
    steps = {
        "label-studio": f"{files}paste interface.xml into the project's labelling interface, and import tasks.json",
        "cvat": "make a task with the labels of cvat-labels.json and the pictures in images, "
        "and upload annotations.xml as CVAT 1.1",
        "fiftyone": "fiftyone.Dataset.from_dir(PATH, fiftyone.types.FiftyOneImageClassificationDataset)",
        "datalab": "the tables of Datalab.get_issues() and get_issue_summary(); fill in corrected_label",
    }
    return [f"{samples} for {tool}: {written.path}", f"Next: {steps[tool]}."]


def suspects_table(suspects: Sequence[SuspectRow]) -> Table:
    """Return suspects of any clients as a table."""
    table = Table(title="most suspicious", title_justify="left")
    for name in ("client", "sample", "given", "suggested", "score"):
        table.add_column(name, justify="right" if name == "score" else "left")
    for each in suspects:
        cells = (each.client, each.sample, each.given, each.suggested)
        table.add_row(*map(Text, cells), f"{each.score:.3f}")
    return table


def nothing_suspicious(samples: int) -> str:
    """Return the sentence for lists without a single suspect."""
    return f"No label looks wrong: the model agrees with each of the {samples}, or is not sure enough to object."


def count_decisions(decided: Sequence[Decision]) -> dict[str, int]:
    """Return the numbers of labels that reviewers decided to be wrong and right."""
    wrong = sum(each.wrong for each in decided)
    return {"wrong": wrong, "right": len(decided) - wrong}
