"""Reliability diagrams: accuracy by the confidence of predictions, and share of wrong labels by score."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from rofl.core.classification import Classification, ReliabilityBin, reliability
from rofl.report.charts import COLOURS, GREY, PlotlyJson, base_layout, plot_call, plotly_text
from rofl.report.environment import Section, render

CHART_ID = "reliability"
SCORE_CHART_ID = "scores"


def reliability_chart(
    metrics: Classification, others: Mapping[str, Classification] | None = None, name: str = "accuracy"
) -> Section:
    """Return the diagram: a bar of accuracy for each bin of confidence, and the diagonal.

    Args:
        metrics: the metrics of the model that the page is about.
        others: the metrics of other methods on the same samples, by name; drawn as lines.
        name: the name of the bars in the legend.
    """
    traces = [_bars(metrics.reliability, plotly_text(name), "%{y:.1f} % of %{customdata} samples are right")]
    for number, (method, other) in enumerate((others or {}).items(), start=1):
        traces.append(_line(method, other.reliability, number))
    html = render(
        "reliability_chart.html.j2",
        chart_id=CHART_ID,
        error=metrics.calibration_error,
        others={method: other.calibration_error for method, other in (others or {}).items()},
    )
    return Section(html, plot_call(CHART_ID, [*traces, _diagonal()], _layout("confidence", "accuracy")))


def score_reliability_chart(scores: Sequence[float], wrong: Tensor) -> Section:
    """Return the diagram of the scores: for each bin of scores, the share of labels that are really wrong.

    Args:
        scores: n probabilities that a label is wrong.
        wrong: (n,) whether the label is wrong.
    """
    bins = reliability(torch.tensor(scores, dtype=torch.float64), wrong)
    error = sum(each.gap * each.samples for each in bins) / max(len(scores), 1)
    bars = _bars(bins, "really wrong", "%{y:.1f} % of %{customdata} labels are wrong")
    html = render("score_reliability.html.j2", chart_id=SCORE_CHART_ID, error=error)
    return Section(html, plot_call(SCORE_CHART_ID, [bars, _diagonal()], _layout("score", "labels that are wrong")))


def _bars(bins: Sequence[ReliabilityBin], name: str, hover: str) -> PlotlyJson:
    shown = [each for each in bins if each.accuracy is not None]
    return {
        "type": "bar",
        "name": name,
        "x": [50 * (each.low + each.high) for each in shown],
        "y": [100 * (each.accuracy or 0) for each in shown],
        "width": 9,
        "marker": {"color": COLOURS[0], "opacity": 0.45},  # so that the diagonal shows through
        "customdata": [each.samples for each in shown],
        "hovertemplate": f"{hover}<extra></extra>",
    }


def _line(name: str, bins: Sequence[ReliabilityBin], number: int) -> PlotlyJson:
    shown = [each for each in bins if each.accuracy is not None]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plotly_text(name),
        "x": [50 * (each.low + each.high) for each in shown],
        "y": [100 * (each.accuracy or 0) for each in shown],
        "line": {"color": COLOURS[number % len(COLOURS)], "width": 2, "dash": "dash"},
        "hovertemplate": "%{y:.1f} %",
    }


def _diagonal() -> PlotlyJson:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "calibrated",
        "x": [0, 100],
        "y": [0, 100],
        "line": {"color": GREY, "dash": "dot", "width": 2.5},
        "hoverinfo": "skip",
    }


def _layout(across: str, up: str) -> PlotlyJson:
    layout = base_layout()
    layout["xaxis"] |= {"title": {"text": across}, "ticksuffix": " %", "range": [0, 100], "hoverformat": ".0f"}
    ticks = [20, 40, 60, 80, 100]  # the other axis already has 0 % at the corner
    layout["xaxis"] |= {"tickvals": ticks, "ticktext": [f"{tick} %" for tick in ticks]}
    layout["yaxis"] |= {"title": {"text": up}, "range": [0, 100]}
    return layout
