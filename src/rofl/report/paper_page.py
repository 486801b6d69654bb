"""The paper's tables and figures as one HTML page: our numbers beside the paper's, with charts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from rofl.data.atomic import atomic_write
from rofl.report.charts import plot_call
from rofl.report.environment import Section, render, render_document
from rofl.report.paper_charts import paper_charts
from rofl.reproduce.markdown import notes
from rofl.reproduce.results import CellResult, TableResult


@dataclass(frozen=True)
class TableRow:
    """A row of a table, as text."""

    name: str
    cells: list[str]


@dataclass(frozen=True)
class ChartPlace:
    """The HTML element that contains a chart."""

    element_id: str
    heading: str


def write_paper_page(results: Sequence[TableResult], out: Path) -> Path:
    """Write one self-contained HTML page of reproduced tables and figures.

    Args:
        results: the tables, in the page's order.
        out: the file.

    Returns:
        The path of the file.
    """
    sections = [_table_section(result, number) for number, result in enumerate(results)]
    script = Markup("\n").join(section.script for section in sections if section.script)
    title = results[0].table.where if len(results) == 1 else "The paper's tables and figures"
    page = Section(Markup("\n").join(section.html for section in sections), script)
    atomic_write(out, render_document("paper_page.html.j2", title, [page], eyebrow="rofl reproduce"))
    return out


def _table_section(result: TableResult, number: int) -> Section:
    """Return a table and its charts; `number` makes the element ids of the charts unique."""
    table = result.table
    charts = paper_charts(result)
    places = [ChartPlace(f"chart-{number}-{index}", chart.heading) for index, chart in enumerate(charts)]
    html = render(
        "paper_table.html.j2",
        table=table,
        lead=" ".join([f"{table.about[0].upper()}{table.about[1:]}.", *notes(result)]),
        problems=result.problems,
        charts=places,
        columns=result.columns,
        rows=[
            TableRow(row, [_cell_text(result.cell(row, column)) for column in result.columns]) for row in result.rows
        ],
    )
    calls = [
        plot_call(place.element_id, chart.traces, chart.layout) for place, chart in zip(places, charts, strict=True)
    ]
    return Section(html, Markup("\n").join(calls))


def _cell_text(cell: CellResult | None) -> str:
    return "" if cell is None else cell.text
