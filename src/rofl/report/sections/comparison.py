"""The figures of a group of runs as text, and the table that compares groups.

A figure is the mean over the seeds, with the standard deviation for two or more seeds. The headline shows some of them
as tiles. To add a figure, add an entry to `group_figures`; to show it as a tile, add an entry to `headline`, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rofl.audit.result import ListQuality
from rofl.report import formatting
from rofl.report.environment import Section, render
from rofl.report.finished_runs import Group
from rofl.training.records import RunSummary

_LIST_QUALITY: dict[str, Callable[[ListQuality], float | None]] = {
    "Suspect precision": lambda quality: quality.precision,
    "Suspect recall": lambda quality: quality.recall,
    "Right suggestions": lambda quality: quality.suggestion_accuracy,
}
_LIST_NOTES = {
    "Suspect precision": "of the suspects are really wrong",
    "Suspect recall": "of the wrong labels are suspects",
    "Right suggestions": "for the suspects that are wrong",
}
_DETECTION_NOTES = {  # for runs of versions that did not measure their lists of suspects
    "Detection precision": "of the labels that training distrusts are wrong",
    "Detection recall": "of the wrong labels are distrusted",
}


def group_figures(group: Group) -> dict[str, str]:
    """Return every figure of a group by name, in the order of the comparison table.

    "Detection" refers to the labels that the method itself does not trust (Eq. 7), "Suspect" to the lists of suspects.
    A figure that some run lacks is a dash. The figures of the lists are absent for runs of versions that did not
    measure them. Bytes have no standard deviation because they hardly depend on the seed.
    """
    summaries = [run.summary for run in group.runs]
    figures = {
        "Test accuracy": formatting.with_spread([one.test_accuracy for one in summaries], formatting.per_cent),
        "Best round": formatting.with_spread([one.best_accuracy for one in summaries], formatting.per_cent),
        "Detection precision": formatting.with_spread([one.precision for one in summaries], formatting.share),
        "Detection recall": formatting.with_spread([one.recall for one in summaries], formatting.share),
        "Suspects": formatting.with_spread([run.flagged for run in group.runs], formatting.count),
        "Expected wrong": formatting.with_spread([run.expected_wrong for run in group.runs], formatting.count),
    }
    if all(map(_measures_lists, summaries)):
        figures |= {
            name: formatting.with_spread(
                [None if one.audit is None else measure(one.audit) for one in summaries], formatting.share
            )
            for name, measure in _LIST_QUALITY.items()
        }
    return figures | {
        "Time": formatting.with_spread([one.seconds for one in summaries], formatting.duration),
        "Sent up": formatting.average([one.bytes_up for one in summaries], formatting.size),
        "Sent down": formatting.average([one.bytes_down for one in summaries], formatting.size),
        "Centroids' share": formatting.average([one.centroid_share for one in summaries], formatting.share),
    }


def truth_notes(group: Group) -> dict[str, str]:
    """Return the names and notes of the figures that need the true labels; empty if no run knows them."""
    if not any(run.truth_known for run in group.runs):
        return {}
    return _LIST_NOTES if all(_measures_lists(run.summary) for run in group.runs) else _DETECTION_NOTES


@dataclass(frozen=True)
class FigureRow:
    """One figure of every method."""

    name: str
    figures: list[str]  # a cell per method; a dash if the method's runs lack the figure


def comparison(groups: Sequence[Group]) -> Section:
    """Return the table with a column per group; an empty section if there is only one group."""
    if len(groups) == 1:
        return Section()
    columns = [group_figures(group) for group in groups]
    names = max(columns, key=len)  # runs of older versions have fewer figures
    rows = [FigureRow(name, [figures.get(name, formatting.UNKNOWN) for figures in columns]) for name in names]
    return Section(render("comparison.html.j2", labels=[group.label for group in groups], rows=rows))


def _measures_lists(summary: RunSummary) -> bool:
    """Return whether the version that wrote the summary measured the lists of suspects; the first ones did not."""
    return summary.format >= 2 or summary.audit is not None
