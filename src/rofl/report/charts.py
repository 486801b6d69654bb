"""Plotly charts: the library's source, the call that draws a chart, and the layout that all charts share.

Each section prepares its own traces. plotly treats every text as HTML, so names go through `plotly_text`.
"""

from collections.abc import Sequence
from html import escape
from typing import Any, TypeAlias

from markupsafe import Markup

from rofl.report.formatting import shortened

PlotlyJson: TypeAlias = dict[str, Any]  # a trace, an axis or a layout, in the words of plotly's schema

# Middle tones that read on white and on black: plotly writes them into the drawing, where a style sheet has no say in
# them. The first is the accent. Text and grid take their colours from style.css.
COLOURS = ("#12938a", "#8b929c", "#b9812f", "#8a6fc4", "#c25f7c", "#5b8bc9")
GREY = COLOURS[1]


def plotly_source() -> str:
    """Return the source of plotly.js (about 4.8 MB), which a page inlines once."""
    from plotly.offline import get_plotlyjs  # slow to import, and most commands do without

    source: str = get_plotlyjs()
    return source


def plotly_text(text: str, max_length: int = 80) -> str:
    """Return a text as plotly shows it literally, with its middle left out where it is long.

    plotly reads names, labels and hover texts as HTML, but does not know `&quot;`: quotes stay as they are.

    >>> plotly_text('<b> & "x"')
    '&lt;b&gt; &amp; "x"'
    """
    return escape(shortened(text, max_length), quote=False)


def plot_call(element_id: str, traces: Sequence[PlotlyJson], layout: PlotlyJson) -> Markup:
    """Return the JavaScript that draws a chart.

    Args:
        element_id: the id of the element to draw into.
        traces: the curves, markers or cells; plotly checks their keys.
        layout: axes, colours and legend, see `base_layout`.
    """
    import plotly.graph_objects as go  # slow to import, and most commands do without

    figure: str = go.Figure(data=traces, layout=layout).to_json().replace("<", "\\u003c")  # cannot end the script
    options = "{responsive: true, displayModeBar: false}"
    call = f'{{const drawing = {figure};\nPlotly.newPlot("{element_id}", drawing.data, drawing.layout, {options});}}'
    return Markup(call)


def base_layout() -> PlotlyJson:
    """Return the layout of a chart over rounds; its colours fit a light and a dark page."""
    axis = {"fixedrange": True, "zeroline": False, "automargin": True}  # a finger on the chart scrolls the page
    return {
        "template": "none",
        "autosize": True,
        "margin": {"l": 8, "r": 22, "t": 8, "b": 8},  # on the right there is room for half a label
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
            "ticklabeloverflow": "allow",  # the last one is centred on the end of the axis
        },
        "yaxis": {**axis, "ticksuffix": " %", "title": {"text": "accuracy"}},
    }


def layout_without_axes() -> PlotlyJson:
    """Return the layout of a t-SNE chart: its directions mean nothing, so no axis is drawn."""
    hidden = {"visible": False, "fixedrange": True}
    return {**base_layout(), "hovermode": "closest", "xaxis": hidden, "yaxis": hidden}
