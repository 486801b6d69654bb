"""Tables and figures of the paper as one page: ours beside the paper's, with plots."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from rofl.data import atomic
from rofl.report import charts
from rofl.report.document import document
from rofl.reproduce.client_divergence import read_picture
from rofl.reproduce.markdown import notes
from rofl.reproduce.results import CellResult, TableResult
from rofl.training.run_dir import RunDir

_FEW = 2  # columns up to which bars say more than lines
_CENTROID = -1  # the client number of a global centroid in a picture


def write_paper_page(outcomes: Sequence[TableResult], out: Path) -> Path:
    """One self-contained HTML page of these grids."""
    parts, scripts = [], []
    for number, outcome in enumerate(outcomes):
        drawings = _drawings(outcome)
        places = [f"chart-{number}-{place}" for place in range(len(drawings))]
        parts.append(_section(outcome, [(place, label) for place, (label, _, _) in zip(places, drawings, strict=True)]))
        scripts += [charts.plot_call(place, *drawing[1:]) for place, drawing in zip(places, drawings, strict=True)]
    title = outcomes[0].grid.where if len(outcomes) == 1 else "The paper's tables and figures"
    atomic.atomic_write(out, document("grids.html", escape(title), ["\n".join(scripts)], sections="\n".join(parts)))
    return out


def _section(outcome: TableResult, places: Sequence[tuple[str, str]]) -> str:
    grid = outcome.grid
    lead = escape(" ".join([f"{grid.about[0].upper()}{grid.about[1:]}.", *notes(outcome)]))
    problems = dict.fromkeys(entry.problem for entry in outcome.entries if entry.problem)
    drawn = "".join(
        f'<h3>{escape(label)}</h3><div id="{place}" class="chart" role="img" aria-label="{escape(label)}"></div>'
        for place, label in places
    )
    failed = "".join(f'<p class="note">Not run: {escape(sentence)}</p>' for sentence in problems)
    return (
        f'<section id="{grid.name}"><h2>{escape(grid.name)} <small>({escape(grid.where)})</small></h2>'
        f'<p class="lead">{lead}</p>{failed}{drawn}<div class="scroll">{_table(outcome)}</div></section>'
    )


def _table(outcome: TableResult) -> str:
    head = "".join(f"<th scope=col>{escape(column)}</th>" for column in outcome.columns)
    rows = "".join(
        f"<tr><th scope=row>{escape(row)}</th>"
        + "".join(f"<td>{_text(outcome.entry(row, column))}</td>" for column in outcome.columns)
        + "</tr>"
        for row in outcome.rows
    )
    corner = escape(outcome.grid.corner)
    return f"<table><thead><tr><th scope=col>{corner}</th>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _text(entry: CellResult | None) -> str:
    return "" if entry is None else escape(entry.text)


Drawing = tuple[str, list[dict[str, Any]], dict[str, Any]]  # heading, traces, layout


def _drawings(outcome: TableResult) -> list[Drawing]:
    """t-SNE pictures where there are some, else one chart; nothing where nothing is finished."""
    if any(entry.cell.measure.endswith("apart") for entry in outcome.entries):
        return _pictures(outcome)
    traces = [
        trace
        for number, row in enumerate(outcome.rows)
        for trace in _traces(row, [outcome.entry(row, column) for column in outcome.columns], number)
    ]
    if not any(entry.values for entry in outcome.entries):
        return []
    unit = " %" if outcome.entries[0].cell.measure == "accuracy" else ""
    layout = charts.layout()
    layout["xaxis"] |= {"type": "category", "title": {"text": outcome.grid.across}}
    layout["yaxis"] |= {"ticksuffix": unit}
    layout["barmode"] = "group"
    return [("Ours in full colour, the paper's pale", traces, layout)]


def _traces(row: str, entries: Sequence[CellResult | None], number: int) -> list[dict[str, Any]]:
    """A row as a line, or as bars where there are few columns; the paper's numbers in the same colour."""
    present = [entry for entry in entries if entry is not None]
    colour = charts.COLOURS[number % len(charts.COLOURS)]
    shape = {"type": "bar"} if len(entries) <= _FEW else {"type": "scatter", "mode": "lines+markers"}
    traces = []
    ours, spreads = [entry.mean for entry in present], [entry.spread or 0 for entry in present]
    for name, values, dash, opacity in (
        (row, ours, "solid", 1.0),
        (f"{row}, paper", [entry.cell.paper for entry in present], "dot", 0.45),
    ):
        if any(value is not None for value in values):
            trace: dict[str, Any] = {
                **shape,
                "name": charts.label(name),
                "x": [entry.cell.column for entry in present],
                "y": values,
            }
            trace |= {"marker": {"color": colour}, "opacity": opacity, "hovertemplate": "%{y}"}
            trace |= {"line": {"color": colour, "dash": dash}} if shape["type"] == "scatter" else {}
            if values is ours and any(spreads):
                trace["error_y"] = {"array": spreads, "color": colour, "thickness": 1}
            traces.append(trace)
    return traces


def _pictures(outcome: TableResult) -> list[Drawing]:
    """Features of clients after one local update each: colour is the class, shape the client, stars are centroids."""
    drawings = []
    for row in outcome.rows:
        folders = next((entry.folders for entry in outcome.entries if entry.cell.row == row), ())
        if folders:
            points = read_picture(RunDir(folders[0]))
            drawings.append((f"Features of five clients, {row}", _scatter(points), _bare()))
    return drawings


def _scatter(points: Sequence[dict[str, float]]) -> list[dict[str, Any]]:
    symbols = ("circle", "square", "diamond", "cross", "triangle-up")
    traces = []
    for client in sorted({int(point["client"]) for point in points}):
        own = [point for point in points if point["client"] == client]
        star = client == _CENTROID
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "global centroids" if star else f"client {client}",
                "x": [point["x"] for point in own],
                "y": [point["y"] for point in own],
                "text": [f"class {point['class']:.0f}" for point in own],
                "hovertemplate": "%{text}",
                "marker": {
                    "symbol": "star" if star else symbols[client % len(symbols)],
                    "size": 15 if star else 6,
                    "color": [point["class"] for point in own],
                    "colorscale": "Portland",
                    "line": {"width": 1 if star else 0, "color": "#8b929c"},
                },
            }
        )
    return traces


def _bare() -> dict[str, Any]:
    """No axes: the directions of t-SNE mean nothing."""
    layout = charts.layout()
    hidden = {"visible": False, "fixedrange": True}
    return {**layout, "hovermode": "closest", "xaxis": hidden, "yaxis": hidden}
