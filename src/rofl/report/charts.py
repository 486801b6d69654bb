"""Plotly charts: the library's source, the call that draws a chart, and the shared layout.

Each section prepares its own traces. plotly interprets all text as HTML, so names must go through `plotly_text`.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, TypeAlias

from markupsafe import Markup

from rofl.report.formatting import shortened

PlotlyJson: TypeAlias = dict[str, Any]  # a trace, an axis or a layout, with the keys of plotly's schema

# Mid tones that are readable on white and on black: plotly writes them into the drawing, so a style sheet cannot
# override them. The first is the accent colour. Text and grid take their colours from style.css.
COLOURS = ("#12938a", "#8b929c", "#b9812f", "#8a6fc4", "#c25f7c", "#5b8bc9")
GREY = COLOURS[1]


def plotly_source() -> str:
    """Return the source of plotly.js (about 4.8 MB); a page inlines it once."""
    from plotly.offline import get_plotlyjs  # slow to import, and most commands do not need it

    source: str = get_plotlyjs()
    return source


def plotly_text(text: str, max_length: int = 80) -> str:
    """Escape a text so that plotly shows it literally, and shorten long text in the middle.

    plotly interprets names, labels and hover texts as HTML but does not decode `&quot;`, so quotes are not escaped.

    >>> plotly_text('<b> & "x"')
    '&lt;b&gt; &amp; "x"'
    """
    return escape(shortened(text, max_length), quote=False)


def plot_call(element_id: str, traces: Sequence[PlotlyJson], layout: PlotlyJson) -> Markup:
    """Return the JavaScript that draws a chart.

    Args:
        element_id: the id of the element to draw into.
        traces: the curves, markers or cells; plotly validates their keys.
        layout: axes, colours and legend; see `base_layout`.
    """
    import plotly.graph_objects as go  # slow to import, and most commands do not need it

    figure: str = go.Figure(data=traces, layout=layout).to_json().replace("<", "\\u003c")  # cannot close the script
    options = "{responsive: true, displayModeBar: false}"
    call = f'{{const drawing = {figure};\nPlotly.newPlot("{element_id}", drawing.data, drawing.layout, {options});}}'
    return Markup(call)


def base_layout() -> PlotlyJson:
    """Return the layout of a chart over rounds, with colours for light and dark pages."""
    axis = {"fixedrange": True, "zeroline": False, "automargin": True}  # so that a finger on the chart scrolls the page
    return {
        "template": "none",
        "autosize": True,
        "margin": {"l": 8, "r": 22, "t": 8, "b": 8},  # leaves room for half a label on the right
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, sans-serif", "size": 13},
        "dragmode": False,
        "hovermode": "x unified",
        "showlegend": True,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "xaxis": {
            **axis,
            "title": {"text": "round"},
            "showgrid": False,
            "rangemode": "tozero",
            "hoverformat": "d",
            "ticklabeloverflow": "allow",  # the last label is centred on the end of the axis
        },
        "yaxis": {**axis, "ticksuffix": " %", "title": {"text": "accuracy"}},
    }


def layout_without_axes() -> PlotlyJson:
    """Return the layout of a t-SNE chart, without axes because its directions have no meaning."""
    hidden = {"visible": False, "fixedrange": True}
    return {**base_layout(), "hovermode": "closest", "xaxis": hidden, "yaxis": hidden}
