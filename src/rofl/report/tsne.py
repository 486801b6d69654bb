"""Features of samples and centroids in two dimensions, by t-SNE."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rofl.audit.result import Features
from rofl.audit.suspect_list import SuspectRow
from rofl.report import charts
from rofl.report.audience import VisibleAudit
from rofl.report.document import Section, fill
from rofl.report.formatting import count

CHART_ID = "features"

_FEWEST = 10  # samples that make a picture
_ITERATIONS = 500  # half of the usual ones: half the time, and on 600 samples of a run 5 % more of what it minimises
_COLOURED = 20  # classes that can be told apart by colour
_PALETTE = (
    *("#12938a", "#c25f7c", "#5b8bc9", "#b9812f", "#8a6fc4", "#6f9a3c", "#cf6a3f", "#3f9fc4", "#b05fb0", "#8b7d5a"),
    *("#4fb8ad", "#e08aa3", "#86aee0", "#d6a75c", "#ad97dd", "#97bd68", "#e39a7a", "#73c0df", "#cf93cf", "#b3a684"),
)
_GREY = "#8b929c"


def embedding(found: VisibleAudit, classes: Sequence[str]) -> Section:
    """Samples by given label and centroids by class; nothing where there are too few samples."""
    features = found.features
    if features is None or len(features.rows) < _FEWEST:
        return Section()
    about = {row.row: row for row in found.rows}
    lines = [about.get(row) for row in features.rows.tolist()]
    known = [place for place, line in enumerate(lines) if line is not None]
    samples, centroids = flat(Features(features.rows[known], features.features[known], features.centroids))
    if len(samples) < _FEWEST:
        return Section()
    told = [line for line in lines if line is not None]
    classes = list(classes) or sorted({line.given for line in told})
    traces = [*_samples(samples, told, classes), *_centroids(centroids, classes)]
    named = 0 < len(centroids) <= _COLOURED  # then the stars are the legend
    marks = "Colour is the given label; a cross is a suspect." if len(classes) <= _COLOURED else "Crosses are suspects."
    stars = " Stars are the classes' centroids, which all clients share." if len(centroids) else ""
    html = fill("embedding.html", chart_id=CHART_ID, count=count(len(told)), marks=marks + stars)
    return Section(html, charts.plot_call(CHART_ID, traces, _layout(legend=not named)))


def flat(features: Features) -> tuple[np.ndarray, np.ndarray]:
    """Samples (m, 2) and centroids (K, 2), put into one plane together."""
    from sklearn.manifold import TSNE  # slow to import
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    rows = [features.features] + ([] if features.centroids is None else [features.centroids])
    stacked = np.nan_to_num(np.concatenate([one.float().numpy() for one in rows]))  # a run may have come apart
    perplexity = min(30.0, max(1.0, (len(stacked) - 1) / 3))
    with threadpool_limits(1):  # threads wait for each other on a busy machine, and their sums differ in the last bit
        machine = TSNE(init="pca", perplexity=perplexity, max_iter=_ITERATIONS, random_state=0, metric="cosine")
        plane = machine.fit_transform(stacked)
    return plane[: len(rows[0])], plane[len(rows[0]) :]


def _samples(plane: np.ndarray, lines: Sequence[SuspectRow], classes: Sequence[str]) -> list[dict[str, Any]]:
    """A trace for each given label, or, where there are too many, one for the suspects and one for the rest."""
    if len(classes) <= _COLOURED:
        colours = dict(zip(classes, _PALETTE, strict=False))
        groups = {name: [place for place, line in enumerate(lines) if line.given == name] for name in classes}
        return [_trace(plane, lines, places, name, colours[name]) for name, places in groups.items() if places]
    suspects = [place for place, line in enumerate(lines) if line.flagged]
    others = [place for place, line in enumerate(lines) if not line.flagged]
    pairs = ((others, "label not flagged", _GREY), (suspects, "suspects", _PALETTE[0]))
    return [_trace(plane, lines, places, name, colour) for places, name, colour in pairs if places]


def _trace(
    plane: np.ndarray, lines: Sequence[SuspectRow], places: Sequence[int], name: str, colour: str
) -> dict[str, Any]:
    places = sorted(places, key=lambda place: lines[place].flagged)  # suspects on top; the legend shows the first
    flagged = [lines[place].flagged for place in places]
    return {
        **_points(plane[places]),
        "mode": "markers",
        "name": charts.label(name, 24),
        "text": [_about(lines[place]) for place in places],
        "marker": {
            "color": colour,
            "symbol": ["x" if suspect else "circle" for suspect in flagged],
            "size": [8 if suspect else 6 for suspect in flagged],
            "opacity": [0.95 if suspect else 0.5 for suspect in flagged],
            "line": {"width": 0},
        },
    }


def _about(line: SuspectRow) -> str:
    given, suggested = charts.label(line.given, 40), charts.label(line.suggested, 40)
    looks = f", looks like {suggested}" if suggested != given else ""
    client, sample = charts.label(line.client, 40), charts.label(line.sample, 60)
    return f"labelled {given}{looks}<br>sample {sample}<br>client {client}"


def _centroids(plane: np.ndarray, classes: Sequence[str]) -> list[dict[str, Any]]:
    if not len(plane):
        return []
    names = [charts.label(classes[place] if place < len(classes) else str(place), 24) for place in range(len(plane))]
    few = len(plane) <= _COLOURED
    return [
        {
            **_points(plane),
            "mode": "markers+text" if few else "markers",
            "name": "centroids",
            "text": names,
            "textposition": "top center",
            "textfont": {"size": 14, "weight": 600},
            "hovertemplate": "centroid of %{text}<extra></extra>",
            "cliponaxis": False,
            "marker": {
                "symbol": "star",
                "size": 15 if few else 10,
                "color": list(_PALETTE[: len(plane)]) if few else "#b9812f",
                "line": {"width": 1.5, "color": _GREY},
            },
        }
    ]


def _points(plane: np.ndarray) -> dict[str, Any]:
    x, y = plane.round(2).T.tolist()
    return {"type": "scatter", "x": x, "y": y, "hovertemplate": "%{text}<extra></extra>"}


def _layout(legend: bool) -> dict[str, Any]:
    """No axes: the directions of t-SNE mean nothing."""
    hidden = {"visible": False, "fixedrange": True}
    return {**charts.layout(), "hovermode": "closest", "showlegend": legend, "xaxis": hidden, "yaxis": hidden}
