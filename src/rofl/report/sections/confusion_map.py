"""Which classes are predicted as which: the confusion matrix as a heat map."""

from dataclasses import dataclass

from rofl.core.classification import Classification
from rofl.report.charts import plot_call
from rofl.report.environment import Section, render
from rofl.report.sections.noise_heatmap import heatmap_layout, heatmap_traces

CHART_ID = "confusion"
_MAX_LISTED = 6


@dataclass(frozen=True)
class Mistake:
    """Samples of one class that are predicted as another."""

    label: str
    predicted: str
    samples: int


def confusion_map(metrics: Classification) -> Section:
    """Return the map and a list of the most frequent mistakes."""
    names = [each.name for each in metrics.classes]
    shares = [[cell / max(sum(row), 1) for cell in row] for row in metrics.confusion]
    hover = "%{y} predicted as %{x}: %{z:.1f} %<extra></extra>"
    html = render("confusion_map.html.j2", chart_id=CHART_ID, confusions=_mistakes(metrics)[:_MAX_LISTED])
    layout = heatmap_layout(names, across="predicted", down="labelled")
    return Section(html, plot_call(CHART_ID, heatmap_traces(shares, names, hover), layout))


def _mistakes(metrics: Classification) -> list[Mistake]:
    """Return all mistakes, most frequent first."""
    found = [
        Mistake(metrics.classes[i].name, metrics.classes[j].name, count)
        for i, row in enumerate(metrics.confusion)
        for j, count in enumerate(row)
        if count and i != j
    ]
    return sorted(found, key=lambda mistake: -mistake.samples)
