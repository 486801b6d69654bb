"""Charts of reproduced tables: lines or bars of our numbers and the paper's, and the t-SNE pictures of Figure 4."""

from collections.abc import Sequence
from dataclasses import dataclass

from rofl.report.charts import COLOURS, GREY, PlotlyJson, base_layout, layout_without_axes, plotly_text
from rofl.reproduce.client_divergence import read_tsne_points
from rofl.reproduce.results import CellResult, TableResult
from rofl.training.run_dir import RunDir

_MAX_BAR_COLUMNS = 2  # up to this many columns, bars are clearer than lines
_CENTROID = -1  # the client number of a global centroid in a picture
_CLIENT_SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up")


@dataclass(frozen=True)
class PaperChart:
    """A chart with its heading."""

    heading: str
    traces: list[PlotlyJson]
    layout: PlotlyJson


def paper_charts(result: TableResult) -> list[PaperChart]:
    """Return the charts of a reproduced table.

    Returns:
        For Figure 4, one t-SNE picture per row. For all other tables, one chart of all rows, with our numbers in full
        colour and the paper's in pale colour; no chart if no cell has a value.
    """
    if any(cell.cell.is_divergence for cell in result.cells):
        return _pictures(result)
    if not any(cell.values for cell in result.cells):
        return []
    traces = [
        trace
        for number, row in enumerate(result.rows)
        for trace in _row_traces(row, [result.cell(row, column) for column in result.columns], number)
    ]
    layout = base_layout()
    layout["xaxis"] |= {"type": "category", "title": {"text": result.table.across}}
    measure = result.cells[0].cell.measure
    layout["yaxis"] |= {"ticksuffix": " %" if measure == "accuracy" else "", "title": {"text": measure}}
    layout["barmode"] = "group"
    return [PaperChart("Ours in full colour, the paper's pale", traces, layout)]


def _row_traces(row: str, cells: Sequence[CellResult | None], number: int) -> list[PlotlyJson]:
    """Return a row's numbers and the paper's in one colour, as lines, or as bars if there are few columns.

    Args:
        row: the row's name.
        cells: its results, column by column; None if the table has no such cell.
        number: index of the row, which selects the colour.
    """
    present = [cell for cell in cells if cell is not None]
    bars = len(cells) <= _MAX_BAR_COLUMNS
    colour = COLOURS[number % len(COLOURS)]
    ours, spreads = [cell.mean for cell in present], [cell.spread or 0 for cell in present]
    traces: list[PlotlyJson] = []
    for name, values, dash, opacity in (
        (row, ours, "solid", 1.0),
        (f"{row}, paper", [cell.cell.paper for cell in present], "dot", 0.45),
    ):
        if all(value is None for value in values):
            continue
        trace: PlotlyJson = {"type": "bar"} if bars else {"type": "scatter", "mode": "lines+markers"}
        trace |= {"name": plotly_text(name), "x": [cell.cell.column for cell in present], "y": values}
        trace |= {"marker": {"color": colour}, "opacity": opacity, "hovertemplate": "%{y}"}
        if not bars:
            trace["line"] = {"color": colour, "dash": dash}
        if values is ours and any(spreads):
            trace["error_y"] = {"array": spreads, "color": colour, "thickness": 1}
        traces.append(trace)
    return traces


def _pictures(result: TableResult) -> list[PaperChart]:
    """Return one picture per row: features of clients after one local update each.

    A row shows its first finished seed; a row without a finished seed has no picture.
    """
    charts = []
    for row in result.rows:
        folders = next((cell.folders for cell in result.cells if cell.cell.row == row), ())
        if folders:
            points = read_tsne_points(RunDir(folders[0]))
            charts.append(PaperChart(f"Features of five clients, {row}", _scatter(points), layout_without_axes()))
    return charts


def _scatter(points: Sequence[dict[str, float]]) -> list[PlotlyJson]:
    """Return one trace per client. Colour shows the class, shape the client; stars are the global centroids.

    Args:
        points: the output of `read_tsne_points`: x, y, client (-1 for a global centroid) and class.
    """
    traces: list[PlotlyJson] = []
    for client in sorted({int(point["client"]) for point in points}):
        client_points = [point for point in points if point["client"] == client]
        star = client == _CENTROID
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "global centroids" if star else f"client {client}",
                "x": [point["x"] for point in client_points],
                "y": [point["y"] for point in client_points],
                "text": [f"class {point['class']:.0f}" for point in client_points],
                "hovertemplate": "%{text}",
                "marker": {
                    "symbol": "star" if star else _CLIENT_SYMBOLS[client % len(_CLIENT_SYMBOLS)],
                    "size": 15 if star else 6,
                    "color": [point["class"] for point in client_points],
                    "colorscale": "Portland",
                    "line": {"width": 1 if star else 0, "color": GREY},
                },
            }
        )
    return traces
