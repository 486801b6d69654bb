"""The result of a table as Markdown."""

from collections.abc import Sequence
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.reproduce.plan import Plan
from rofl.reproduce.results import TableResult
from rofl.reproduce.scales import substitution_note


def write_markdown(plan: Plan, results: Sequence[TableResult]) -> Path:
    """Write the results of a plan to `<plan.out>/<plan.name>.md`, and return that path."""
    path = plan.out / f"{plan.name}.md"
    atomic_write(path, "\n".join(markdown(result) for result in results))
    return path


def markdown(result: TableResult) -> str:
    """Return a heading, a description, the table, and the problems."""
    table = result.table
    heading = [f"## {table.name} ({table.where})", "", f"{table.about[0].upper()}{table.about[1:]}."]
    rows = [markdown_row([table.corner or " ", *result.columns]), markdown_row(["---"] * (len(result.columns) + 1))]
    for row in result.rows:
        cells = [result.cell(row, column) for column in result.columns]
        rows.append(markdown_row([row, *("" if cell is None else cell.text for cell in cells)]))
    return "\n".join([*heading, *notes(result), "", *rows, "", *_problems(result)])


def notes(result: TableResult) -> list[str]:
    """Return notes about the numbers: scale, seeds, time, and missing cells."""
    seeds = sorted({len(cell.values) for cell in result.cells if cell.values})
    has_paper = any(cell.cell.paper is not None for cell in result.cells)
    spread = " ± sample standard deviation" if seeds and seeds[-1] > 1 else ""
    sentences = [
        f"Scale {result.scale}; ours{spread}{' / the paper' if has_paper else ''};"
        f" {' or '.join(map(str, seeds)) or 'no'} seed{'s' if seeds != [1] else ''};"
        f" {result.seconds:.0f} s of training in all.",
        substitution_note(result.scale, result.table.data),
        result.table.note,
        _missing_columns(result),
    ]
    return [sentence for sentence in sentences if sentence]


def _missing_columns(result: TableResult) -> str:
    columns = [column for column in result.table.columns if column not in result.columns]
    return f"Not part of this run: {', '.join(columns).rstrip('.')}." if columns else ""


def _problems(result: TableResult) -> list[str]:
    return [*(f"- Not run: {sentence}" for sentence in result.problems), ""] if result.problems else []


def markdown_row(cells: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(cells)} |"
