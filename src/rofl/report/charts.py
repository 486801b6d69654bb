"""Accuracy per round as a plotly chart."""

from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import Any

from rofl.report import formatting
from rofl.report.finished_runs import Group

CHART_ID = "accuracy"

# Middle tones that read on white and on black: plotly writes them into the drawing, where a style sheet has no say in
# them. The first is the accent. Text and grid take their colours from style.css.
COLOURS = ("#12938a", "#8b929c", "#b9812f", "#8a6fc4", "#c25f7c", "#5b8bc9")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")  # so that colour is not needed
_MARKED = 40  # a curve of up to so many points shows them


def library() -> str:
    """The source of plotly.js, to be put into a page once."""
    from plotly.offline import get_plotlyjs

    source: str = get_plotlyjs()
    return source


def accuracy_script(groups: Sequence[Group]) -> str:
    """The call that draws all runs into the element CHART_ID."""
    traces = [trace for number, group in enumerate(groups) for trace in _traces(group, number)]
    return plot_call(CHART_ID, traces, layout())


def label(text: str, most: int = 80) -> str:
    """A text for a drawing: plotly reads all text as HTML, but does not know &quot; and would write it out."""
    return escape(formatting.shortened(text, most), quote=False)


def plot_call(place: str, traces: Sequence[dict[str, Any]], chosen: dict[str, Any]) -> str:
    """The call that draws traces into an element."""
    import plotly.graph_objects as go  # slow to import, and most commands do without

    drawing: str = go.Figure(data=traces, layout=chosen).to_json().replace("<", "\\u003c")  # cannot end the script
    options = "{responsive: true, displayModeBar: false}"
    return f'{{const drawing = {drawing};\nPlotly.newPlot("{place}", drawing.data, drawing.layout, {options});}}'


def _traces(group: Group, number: int) -> list[dict[str, Any]]:
    """A line per method; where there are several seeds it is their mean, with each run as a thin line behind it."""
    curves = [run.curve for run in group.runs]
    if len(curves) == 1:
        return [_trace(group.label, curves[0], number, width=2.5)]
    thin = [
        _trace(f"{group.label}, seed {run.experiment.seed}", run.curve, number, width=1)
        | {"opacity": 0.45, "showlegend": False, "hoverinfo": "skip", "mode": "lines"}
        for run in group.runs
    ]
    rounds = sorted(set.intersection(*(set(dict(curve)) for curve in curves)))
    mean = [(index, fmean(dict(curve)[index] for curve in curves)) for index in rounds]
    return [*thin, _trace(f"{group.label}, mean of {len(curves)} seeds", mean, number, width=2.5)]


def _trace(name: str, curve: Sequence[tuple[int, float]], number: int, width: float) -> dict[str, Any]:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    return {
        "type": "scatter",
        "name": label(name),
        "x": [index for index, _ in curve],
        "y": [accuracy for _, accuracy in curve],
        "mode": "lines+markers" if len(curve) <= _MARKED else "lines",
        "line": {"color": colour, "width": width, "dash": dash},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.1f} %",
        "legendgroup": str(number),
    }


def layout() -> dict[str, Any]:
    """Axes and colours that fit the page, light or dark."""
    axis = {"fixedrange": True, "zeroline": False, "automargin": True}  # a finger on the chart scrolls the page
    return {
        "template": "none",
        "autosize": True,
        "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "dragmode": False,
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "xaxis": {**axis, "title": {"text": "round"}, "showgrid": False, "rangemode": "tozero", "hoverformat": "d"},
        "yaxis": {**axis, "ticksuffix": " %"},
    }
