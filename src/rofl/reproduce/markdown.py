"""A grid's outcome as Markdown."""

from rofl.reproduce.results import TableResult
from rofl.reproduce.scales import substitution_note


def markdown(outcome: TableResult) -> str:
    """A heading, what is compared, the table, and what could not run."""
    grid = outcome.grid
    head = [f"## {grid.name} ({grid.where})", "", f"{grid.about[0].upper()}{grid.about[1:]}.", *notes(outcome), ""]
    columns = outcome.columns
    table = [_row([grid.corner or " ", *columns]), _row(["---"] * (len(columns) + 1))]
    for row in outcome.rows:
        found = [outcome.entry(row, column) for column in columns]
        table.append(_row([row, *("" if entry is None else entry.text for entry in found)]))
    return "\n".join([*head, *table, "", *_problems(outcome)])


def notes(outcome: TableResult) -> list[str]:
    """Sentences a reader needs before the numbers."""
    seeds = sorted({len(entry.values) for entry in outcome.entries if entry.values})
    known = any(entry.cell.paper is not None for entry in outcome.entries)
    spread = " ± sample standard deviation" if seeds and seeds[-1] > 1 else ""
    said = [
        f"Scale {outcome.scale}; ours{spread}{' / the paper' if known else ''};"
        f" {' or '.join(map(str, seeds)) or 'no'} seed{'s' if seeds != [1] else ''};"
        f" {outcome.seconds:.0f} s of training in all.",
        substitution_note(outcome.scale, outcome.grid.data),
        outcome.grid.note,
        _left_out(outcome),
    ]
    return [sentence for sentence in said if sentence]


def _left_out(outcome: TableResult) -> str:
    columns = [column for column in outcome.grid.columns if column not in outcome.columns]
    return f"Not part of this run: {', '.join(columns).rstrip('.')}." if columns else ""


def _problems(outcome: TableResult) -> list[str]:
    sentences = dict.fromkeys(entry.problem for entry in outcome.entries if entry.problem)
    return [*(f"- Not run: {sentence}" for sentence in sentences), ""] if sentences else []


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
