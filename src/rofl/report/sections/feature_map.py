"""A t-SNE picture of the features of samples and the centroids of classes.

A run stores the features of up to 600 samples (`rofl.audit.result.Features`). The picture is computed when a page is
written, from the samples that its reader may see.
"""

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from rofl.audit.projection import project_features
from rofl.audit.suspect_list import SuspectRow
from rofl.report.audience import VisibleAudit
from rofl.report.charts import GREY, PlotlyJson, layout_without_axes, plot_call, plotly_text
from rofl.report.environment import Section, read_static, render

CHART_ID = "features"

_MIN_SAMPLES = 10  # with fewer there is no picture
_ITERATIONS = 500  # half of the default: half the time, and the loss on 600 samples of a run is 5 % larger
_MAX_COLOURS = 20  # number of classes that can be distinguished by colour
_PALETTE = (
    *("#12938a", "#c25f7c", "#5b8bc9", "#b9812f", "#8a6fc4", "#6f9a3c", "#cf6a3f", "#3f9fc4", "#b05fb0", "#8b7d5a"),
    *("#4fb8ad", "#e08aa3", "#86aee0", "#d6a75c", "#ad97dd", "#97bd68", "#e39a7a", "#73c0df", "#cf93cf", "#b3a684"),
)


def feature_map(audit: VisibleAudit, classes: Sequence[str]) -> Section:
    """Return the scatter plot: samples by given label, suspects as crosses, centroids as stars.

    Args:
        audit: the samples that the reader may see, with the features that the run kept.
        classes: the names of the classes; empty for runs of old versions, whose classes are taken from the labels.

    Returns:
        The section; empty if fewer than ten samples have features.
    """
    features = audit.features
    if features is None:
        return Section()
    row_of = {row.row: row for row in audit.rows}
    listed = [index for index, row in enumerate(features.rows.tolist()) if row in row_of]
    if len(listed) < _MIN_SAMPLES:
        return Section()
    rows = [row_of[row] for row in features.rows[listed].tolist()]
    samples, centroids = project_features(features.features[listed], features.centroids, _ITERATIONS)
    classes = list(classes) or sorted({row.given for row in rows})
    html = render(
        "feature_map.html.j2",
        chart_id=CHART_ID,
        samples=len(rows),
        coloured=len(classes) <= _MAX_COLOURS,
        has_centroids=len(centroids) > 0,
        has_gallery=any(row.flagged for row in rows),
    )
    traces = [*_sample_traces(samples, rows, classes), *_centroid_traces(centroids, classes)]
    if len(classes) <= _MAX_COLOURS:  # else suspects have their own trace
        coloured = [trace for trace in traces if "customdata" in trace]
        keys = [_legend_key(trace["name"], "circle", trace["marker"]["color"]) for trace in coloured]
        for trace, key in zip(coloured, keys, strict=True):
            trace |= {"showlegend": False, "legendgroup": trace["name"]}
            key["legendgroup"] = trace["name"]
        suspect = [_legend_key("suspect", "x", GREY)] if any(row.flagged for row in rows) else []
        traces = [*coloured, *keys, *traces[len(keys) :], *suspect]
    layout = layout_without_axes()
    layout |= {"legend": {**layout["legend"], "itemsizing": "constant"}}
    script = plot_call(CHART_ID, traces, layout)
    return Section(html, Markup("\n").join([script, read_static("feature_map.js")]))


def _sample_traces(points: np.ndarray, rows: Sequence[SuspectRow], classes: Sequence[str]) -> list[PlotlyJson]:
    """Return one trace per given label or, if there are too many classes, one for suspects and one for the others.

    Args:
        points: (m, 2) of the samples.
        rows: the m samples, in the same order.
        classes: the names of all classes; a class without samples gets no trace.
    """
    if len(classes) <= _MAX_COLOURS:
        groups = [
            (name, colour, [index for index, row in enumerate(rows) if row.given == name])
            for name, colour in zip(classes, _PALETTE, strict=False)
        ]
    else:
        groups = [
            ("label not flagged", GREY, [index for index, row in enumerate(rows) if not row.flagged]),
            ("suspects", _PALETTE[0], [index for index, row in enumerate(rows) if row.flagged]),
        ]
    return [
        _sample_trace(points[chosen], [rows[index] for index in chosen], name, colour)
        for name, colour, indices in groups
        if (chosen := sorted(indices, key=lambda index: rows[index].flagged))  # suspects last, so they are drawn on top
    ]


def _sample_trace(points: np.ndarray, rows: Sequence[SuspectRow], name: str, colour: str) -> PlotlyJson:
    """Return markers of one colour: crosses for suspects, paler circles for the others.

    Args:
        points: (m, 2) of the samples.
        rows: the m samples, in the same order.
        name: the name in the legend.
        colour: the colour of the markers.
    """
    return {
        **_scatter(points),
        "mode": "markers",
        "name": plotly_text(name, 24),
        "text": [_hover_text(row) for row in rows],
        "customdata": [row.row for row in rows],  # feature_map.js tells the gallery which are selected
        "selected": {"marker": {"opacity": 1}},
        "unselected": {"marker": {"opacity": 0.15}},
        "marker": {
            "color": colour,
            "symbol": ["x" if row.flagged else "circle" for row in rows],
            "size": [8 if row.flagged else 6 for row in rows],
            "opacity": [0.95 if row.flagged else 0.5 for row in rows],
            "line": {"width": 0},
        },
    }


def _legend_key(name: str, symbol: str, colour: str) -> PlotlyJson:
    """Return a trace without points that serves as a legend entry.

    plotly would show the symbol of a trace's first point, which may be either of the two.

    Args:
        name: the name in the legend.
        symbol: the marker symbol.
        colour: the marker colour.
    """
    marker = {"symbol": symbol, "size": 8, "color": colour}
    return {"type": "scatter", "mode": "markers", "name": name, "x": [None], "y": [None], "marker": marker}


def _hover_text(row: SuspectRow) -> str:
    """Return the hover text of a sample; names are escaped, and `<br>` separates lines."""
    given, suggested = plotly_text(row.given, 40), plotly_text(row.suggested, 40)
    suggestion = f", looks like {suggested}" if suggested != given else ""
    client, sample = plotly_text(row.client, 40), plotly_text(row.sample, 60)
    return f"labelled {given}{suggestion}<br>sample {sample}<br>client {client}"


def _centroid_traces(points: np.ndarray, classes: Sequence[str]) -> list[PlotlyJson]:
    """Return the trace of the centroids as stars, labelled with their names if there are few.

    Args:
        points: (K, 2); (0, 2) for a method without centroids, which gets no trace.
        classes: the names; a centroid without a name is labelled with its number.
    """
    if not len(points):
        return []
    names = [classes[number] if number < len(classes) else str(number) for number in range(len(points))]
    few = len(points) <= _MAX_COLOURS
    return [
        {
            **_scatter(points),
            "mode": "markers+text" if few else "markers",
            "name": "centroid of a class",
            "text": [plotly_text(name, 24) for name in names],
            "textposition": "top center",
            "textfont": {"size": 14, "weight": 600},
            "hovertemplate": "centroid of %{text}<extra></extra>",
            "cliponaxis": False,
            "marker": {
                "symbol": "star",
                "size": 15 if few else 10,
                "color": list(_PALETTE[: len(points)]) if few else "#b9812f",
                "line": {"width": 1.5, "color": GREY},
            },
        }
    ]


def _scatter(points: np.ndarray) -> PlotlyJson:
    """Return the keys that all traces share; coordinates are rounded, which halves their size in the page."""
    x, y = points.round(2).T.tolist()
    return {"type": "scatter", "x": x, "y": y, "hovertemplate": "%{text}<extra></extra>"}
