"""From which class to which labels go wrong: the estimated transition matrix as a heat map."""

from collections.abc import Sequence
from typing import Any

from rofl.report import charts, formatting
from rofl.report.document import Section, fill
from rofl.report.finished_runs import FinishedRun

CHART_ID = "transition"

_ACCENT = "18,147,138"  # the first of charts.COLOURS
_NUMBERED = 12  # classes up to which cells have their number written in
_TICKS = 25  # class names on an axis
_NAME = 13  # characters of a name on an axis
_UPRIGHT = 2  # characters of names that fit side by side on a phone
_TOP = 6  # pairs in the list beside the map

Matrix = list[list[float]]  # [class by the model][given label], rows add up to 1


def transition(run: FinishedRun) -> Section:
    """The map, and the most frequent mistakes in words; nothing for runs that did not estimate them."""
    matrix = run.summary.estimated.transition if run.summary.estimated else None
    if not matrix:
        return Section()
    names = run.classes if len(run.classes) == len(matrix) else [str(number) for number in range(len(matrix))]
    html = fill("transition.html", chart_id=CHART_ID, pairs=_pairs(matrix, names))
    return Section(html, charts.plot_call(CHART_ID, _traces(matrix, names), _layout(names)))


def _pairs(matrix: Matrix, names: Sequence[str]) -> str:
    """The most frequent mistakes as a list."""
    found = sorted(
        ((share, by_model, given) for by_model, given, share in _off_diagonal(matrix) if share > 0), reverse=True
    )
    if not found:
        return '<p class="note">No class is taken for another.</p>'
    items = "".join(
        f"<li><span><b>{formatting.brief(names[by_model])}</b> labelled <b>{formatting.brief(names[given])}</b></span>"
        f'<span class="figure">{formatting.share(share)}</span></li>'
        for share, by_model, given in found[:_TOP]
    )
    return f'<h3>Most frequent</h3><ol class="pairs">{items}</ol>'


def _off_diagonal(matrix: Matrix) -> list[tuple[int, int, float]]:
    return [(i, j, share) for i, row in enumerate(matrix) for j, share in enumerate(row) if i != j]


def _traces(matrix: Matrix, names: Sequence[str]) -> list[dict[str, Any]]:
    """Mistakes in the accent colour and, since right labels would outshine them, the diagonal in grey."""
    labels = _unique(names)
    most = 100 * max((share for _, _, share in _off_diagonal(matrix)), default=0) or 1
    common = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "xgap": 1 if len(names) <= _TICKS else 0,
        "ygap": 1 if len(names) <= _TICKS else 0,
        "hoverongaps": False,
        "hovertemplate": "labelled %{x}, looks like %{y}: %{z:.1f} %<extra></extra>",
        "zmin": 0,
        **({"texttemplate": "%{z:.0f}"} if len(names) <= _NUMBERED else {}),
    }
    size = range(len(matrix))
    wrong = [[None if i == j else round(100 * matrix[i][j], 3) for j in size] for i in size]
    right = [[round(100 * matrix[i][j], 3) if i == j else None for j in size] for i in size]
    # see-through colours: the page's ground, light or dark, shines through where there is little
    faint, full = f"rgba({_ACCENT},0.04)", f"rgba({_ACCENT},0.75)"
    bar = {"orientation": "h", "thickness": 8, "len": 0.6, "y": -0.02, "yanchor": "top", "outlinewidth": 0}
    bar |= {"tickvals": [0, most], "ticktext": ["0 %", f"{most:.3g} %"], "tickangle": 0}
    grey = "rgba(139,146,156,0.25)"
    return [
        {**common, "z": wrong, "zmax": most, "colorscale": [[0, faint], [1, full]], "colorbar": bar},
        {**common, "z": right, "zmax": 100, "colorscale": [[0, grey], [1, grey]], "showscale": False},
    ]


def _layout(names: Sequence[str]) -> dict[str, Any]:
    labels = _unique(names)
    step = -(-len(names) // _TICKS)
    ticks = {"tickvals": labels[::step], "ticktext": [charts.label(name, _NAME) for name in names[::step]]}
    axis = {"type": "category", "fixedrange": True, "showgrid": False, "automargin": True, "ticks": "", **ticks}
    slope = 0 if max(map(len, names)) <= _UPRIGHT else -45
    return {
        **charts.layout(),
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": {**axis, "title": {"text": "labelled"}, "side": "top", "tickangle": slope},
        "yaxis": {**axis, "title": {"text": "looks like"}, "autorange": "reversed"},
    }


def _unique(names: Sequence[str]) -> list[str]:
    """Names for plotly, which takes classes of one name for one class."""
    short = [charts.label(name) for name in names]
    return [name if short.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(short)]
