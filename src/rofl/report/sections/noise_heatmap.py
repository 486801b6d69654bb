"""The estimated label noise: per client as a table, and between classes as a heat map.

The matrix is `NoiseEstimate.transition` from summary.json. It needs no true labels and reveals no single sample, so
every audience sees the map.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rofl.report.audience import ClientNoise
from rofl.report.charts import PlotlyJson, base_layout, plot_call, plotly_text
from rofl.report.environment import Section, render
from rofl.report.finished_runs import Audited

CHART_ID = "transition"

_ACCENT = "18,147,138"  # the first of charts.COLOURS
_RIGHT_LABELS = "rgba(139,146,156,0.25)"  # the colour of the diagonal
_MAX_NUMBERED = 12  # up to this many classes, cells show their number
_MAX_TICKS = 25  # maximum number of class names on an axis
_TICK_LENGTH = 13  # characters of a name on an axis
_UPRIGHT_LENGTH = 2  # names of up to this many characters fit side by side on a phone
_HOVER = "labelled %{x}, looks like %{y}: %{z:.1f} %<extra></extra>"
_MAX_LISTED = 6  # number of confusions in the list beside the map

Matrix = list[list[float]]  # (K, K): [predicted class][given label]; rows sum to 1


def client_table(clients: Sequence[ClientNoise], judge: str) -> Section:
    """Return the table of clients: samples, suspects with a bar for their share, expected wrong labels, and bounds.

    The last two columns are left out if they are unknown for all clients.

    Args:
        clients: one row each; a table of more than 30 rows scrolls in a box.
        judge: the model that judged the labels, as the text above the table names it.
    """
    expected = any(client.expected is not None for client in clients)
    bounds = any(client.interval for client in clients)
    return Section(render("client_table.html.j2", clients=clients, judge=judge, expected=expected, bounds=bounds))


@dataclass(frozen=True)
class Confusion:
    """A pair of classes: samples that look like the first but are labelled as the second."""

    predicted: str
    given: str
    share: float  # of the samples that look like the first class


def noise_heatmap(run: Audited) -> Section:
    """Return the heat map and a list of the most frequent confusions.

    Classes are numbered if the summary does not name all classes of the matrix.

    Returns:
        The section; empty for runs of old versions, which have no estimate.
    """
    matrix = run.summary.estimated.transition if run.summary.estimated else None
    if not matrix:
        return Section()
    names = run.classes if len(run.classes) == len(matrix) else [str(number) for number in range(len(matrix))]
    html = render("noise_heatmap.html.j2", chart_id=CHART_ID, confusions=_confusions(matrix, names)[:_MAX_LISTED])
    return Section(
        html,
        plot_call(
            CHART_ID, heatmap_traces(matrix, names, _HOVER), heatmap_layout(names, across="labelled", down="looks like")
        ),
    )


def _confusions(matrix: Matrix, names: Sequence[str]) -> list[Confusion]:
    """Return all confusions, most frequent first; among equals, the later classes come first."""
    ranked = sorted(((share, i, j) for i, j, share in _off_diagonal(matrix) if share > 0), reverse=True)
    return [Confusion(names[i], names[j], share) for share, i, j in ranked]


def _off_diagonal(matrix: Matrix) -> list[tuple[int, int, float]]:
    """Return (predicted class, given label, share) of all pairs of different classes."""
    return [(i, j, share) for i, row in enumerate(matrix) for j, share in enumerate(row) if i != j]


def heatmap_traces(matrix: Matrix, names: Sequence[str], hover: str) -> list[PlotlyJson]:
    """Return two complementary heat maps, one for mistakes and one for the diagonal.

    Mistakes have the accent colour, on a scale that ends at the largest share. The diagonal (right labels) is grey,
    because it would outshine the mistakes on the same scale.

    Args:
        matrix: (K, K) shares.
        names: the names of the K classes, for both axes.
        hover: the hover text of a cell, as plotly's `hovertemplate`.
    """
    labels = _unique_labels(names)
    highest = 100 * max((share for _, _, share in _off_diagonal(matrix)), default=0) or 1
    gap = 1 if len(names) <= _MAX_TICKS else 0
    common: PlotlyJson = {
        "type": "heatmap",
        "x": labels,
        "y": labels,
        "xgap": gap,
        "ygap": gap,
        "hoverongaps": False,
        "hovertemplate": hover,
        "zmin": 0,
        **({"texttemplate": "%{z:.0f}"} if len(names) <= _MAX_NUMBERED else {}),
    }
    size = range(len(matrix))
    wrong = [[None if i == j else round(100 * matrix[i][j], 3) for j in size] for i in size]
    right = [[round(100 * matrix[i][j], 3) if i == j else None for j in size] for i in size]
    # colours are translucent, so that small shares show the page's background, light or dark
    faint, full = f"rgba({_ACCENT},0.04)", f"rgba({_ACCENT},0.75)"
    bar: PlotlyJson = {"orientation": "h", "thickness": 8, "len": 0.6, "y": -0.02, "yanchor": "top", "outlinewidth": 0}
    bar |= {"tickvals": [0, highest], "ticktext": ["0 %", f"{highest:.3g} %"], "tickangle": 0}
    grey = [[0, _RIGHT_LABELS], [1, _RIGHT_LABELS]]
    return [
        {**common, "z": wrong, "zmax": highest, "colorscale": [[0, faint], [1, full]], "colorbar": bar},
        {**common, "z": right, "zmax": 100, "colorscale": grey, "showscale": False},
    ]


def heatmap_layout(names: Sequence[str], across: str, down: str) -> PlotlyJson:
    """Return square axes with names on top and the first class in the upper left corner.

    An axis shows at most 25 class names; hover texts show all of them.

    Args:
        names: the names of the K classes.
        across: the title of the horizontal axis.
        down: the title of the vertical axis.
    """
    labels = _unique_labels(names)
    step = -(-len(names) // _MAX_TICKS)
    ticks = {"tickvals": labels[::step], "ticktext": [plotly_text(name, _TICK_LENGTH) for name in names[::step]]}
    axis = {"type": "category", "fixedrange": True, "showgrid": False, "automargin": True, "ticks": "", **ticks}
    angle = 0 if max(map(len, names)) <= _UPRIGHT_LENGTH else -45
    return {
        **base_layout(),
        "hovermode": "closest",
        "showlegend": False,
        "xaxis": {**axis, "title": {"text": across}, "side": "top", "tickangle": angle},
        "yaxis": {**axis, "title": {"text": down}, "autorange": "reversed"},
    }


def _unique_labels(names: Sequence[str]) -> list[str]:
    """Return distinct names, because plotly merges categories of the same name."""
    short = [plotly_text(name) for name in names]
    return [name if short.count(name) == 1 else f"{name} ({number})" for number, name in enumerate(short)]
