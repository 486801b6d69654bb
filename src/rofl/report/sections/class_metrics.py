"""Per-class metrics: a table of precision and recall, and the confusion matrix as a heat map."""

from collections.abc import Mapping
from dataclasses import dataclass

from rofl.core.classification import Classification, ClassMetrics
from rofl.report.charts import plot_call
from rofl.report.environment import Section, render
from rofl.report.sections.noise_heatmap import heatmap_layout, heatmap_traces

CHART_ID = "confusion"
_HARDLY_EVER = 0.1  # a class with fewer predictions than this share of its samples is highlighted
_MAX_LISTED = 6  # number of mistakes in the list beside the map


@dataclass(frozen=True)
class ClassRow:
    """A row of the table: the metrics of a class, and its recall by other methods."""

    metrics: ClassMetrics
    missed: bool  # whether it has samples and is hardly ever predicted
    others: list[float | None]  # recall by each of the other methods


def class_metrics(
    metrics: Classification, others: Mapping[str, Classification] | None = None, as_given: bool = False
) -> Section:
    """Return the table of precision, recall and F1.

    Args:
        metrics: the metrics of the model that the page is about.
        others: the metrics of other methods on the same samples, by name; the table has a column for their recall.
        as_given: whether labels are used as given, so that some may be wrong.
    """
    others = others or {}
    rows = [
        ClassRow(each, _is_missed(each), [one.classes[place].recall for one in others.values()])
        for place, each in enumerate(metrics.classes)
    ]
    missed = [row.metrics.name for row in rows if row.missed]
    return Section(render("class_metrics.html.j2", rows=rows, others=list(others), missed=missed, as_given=as_given))


@dataclass(frozen=True)
class Mistake:
    """Samples of one class that are predicted as another."""

    label: str
    predicted: str
    samples: int


def confusion_map(metrics: Classification) -> Section:
    """Return the confusion matrix as a heat map, and a list of the most frequent mistakes."""
    names = [each.name for each in metrics.classes]
    shares = [[cell / max(sum(row), 1) for cell in row] for row in metrics.confusion]
    hover = "%{y} predicted as %{x}: %{z:.1f} %<extra></extra>"
    html = render("confusion_map.html.j2", chart_id=CHART_ID, confusions=_mistakes(metrics)[:_MAX_LISTED])
    layout = heatmap_layout(names, across="predicted", down="labelled")
    return Section(html, plot_call(CHART_ID, heatmap_traces(shares, names, hover), layout))


def _is_missed(each: ClassMetrics) -> bool:
    """Return whether a class has samples and is hardly ever predicted."""
    return each.support > 0 and each.predicted < _HARDLY_EVER * each.support


def _mistakes(metrics: Classification) -> list[Mistake]:
    """Return all mistakes, most frequent first."""
    found = [
        Mistake(metrics.classes[i].name, metrics.classes[j].name, count)
        for i, row in enumerate(metrics.confusion)
        for j, count in enumerate(row)
        if count and i != j
    ]
    return sorted(found, key=lambda mistake: -mistake.samples)
