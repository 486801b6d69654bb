"""Test accuracy per round, a line per method."""

from collections.abc import Sequence
from statistics import fmean

from rofl.report.charts import COLOURS, PlotlyJson, base_layout, plot_call, plotly_text
from rofl.report.environment import Section, render
from rofl.report.finished_runs import Group

CHART_ID = "accuracy"

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")  # lines differ without colour
_MAX_MARKERS = 40  # a curve with at most this many points gets a marker at each


def accuracy_chart(groups: Sequence[Group]) -> Section:
    """Return the section with the accuracy curves of all runs."""
    traces = [trace for number, group in enumerate(groups) for trace in _group_traces(group, number)]
    as_given = any(run.experiment.data.is_user_data for group in groups for run in group.runs)
    html = render("accuracy_chart.html.j2", chart_id=CHART_ID, as_given=as_given)
    layout = base_layout()
    layout["yaxis"]["title"] = {"text": "accuracy" if as_given else "test accuracy"}
    return Section(html, plot_call(CHART_ID, traces, layout))


def _group_traces(group: Group, number: int) -> list[PlotlyJson]:
    """Return the line of one run; for several seeds, their mean with the single runs as thin lines behind it."""
    curves = [run.curve for run in group.runs]
    if len(curves) == 1:
        return [_trace(group.label, curves[0], number, width=2.5)]
    thin = [
        _trace(f"{group.label}, seed {run.experiment.seed}", run.curve, number, width=1)
        | {"opacity": 0.45, "showlegend": False, "hoverinfo": "skip", "mode": "lines"}
        for run in group.runs
    ]
    rounds = sorted(set.intersection(*(set(dict(curve)) for curve in curves)))  # evaluated in every run
    mean = [(index, fmean(dict(curve)[index] for curve in curves)) for index in rounds]
    return [*thin, _trace(f"{group.label}, mean of {len(curves)} seeds", mean, number, width=2.5)]


def _trace(name: str, curve: Sequence[tuple[int, float]], number: int, width: float) -> PlotlyJson:
    """Return the trace of one line.

    Args:
        name: the name in the legend.
        curve: (round, accuracy in per cent).
        number: index of the group, which selects the colour and the dashes.
        width: line width in pixels.
    """
    colour, dash = COLOURS[number % len(COLOURS)], _DASHES[number % len(_DASHES)]
    return {
        "type": "scatter",
        "name": plotly_text(name),
        "x": [index for index, _ in curve],
        "y": [accuracy for _, accuracy in curve],
        "mode": "lines+markers" if len(curve) <= _MAX_MARKERS else "lines",
        "line": {"color": colour, "width": width, "dash": dash},
        "marker": {"size": 5},
        "hovertemplate": "%{y:.1f} %",
        "legendgroup": str(number),
    }
