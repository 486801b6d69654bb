"""Fourteen attacks by one site of five, over ten rounds, with and without bounds, masks and robust means.

python -m benchmarks.attacks                     # all cells: about half an hour of one core; finished ones are kept
python -m benchmarks.attacks --only x1000 --again
python -m benchmarks.attacks --write             # the table in docs/security.md, from the finished cells

The figures are in benchmarks/records/attacks.json.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.attacks.attacked_run import Outcome, attack_settings, run_attacked
from benchmarks.attacks.site_attacks import ATTACKS
from benchmarks.page_table import write_table
from rofl.config.schema import Experiment
from rofl.data.atomic import atomic_write

WITHIN = 2.0  # points of accuracy below the four honest sites alone
RECORDS = Path("benchmarks/records/attacks.json")
PAGE = Path("docs/security.md")
_BEGIN, _END = "<!-- begin: python -m benchmarks.attacks --write -->", "<!-- end -->"
_FOUR, _FIVE = "*four honest sites alone*", "*five honest sites*"

# name -> settings, and whether sums are masked
COLUMNS: dict[str, tuple[Callable[[], Experiment], bool]] = {
    "no bounds": (lambda: attack_settings(masks=False, bounds=False), False),
    "bounds": (lambda: attack_settings(masks=False), False),
    "bounds and masks": (lambda: attack_settings(masks=True), True),
    "bounds and median": (lambda: attack_settings(masks=False, server__robust="median"), False),
    "bounds and krum": (lambda: attack_settings(masks=False, server__robust="krum"), False),
}
Records = dict[str, Outcome]  # by `<row> | <column>`


def main() -> None:
    """Run the cells that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--columns", nargs="*", default=list(COLUMNS), choices=list(COLUMNS))
    parser.add_argument("--again", action="store_true", help="run finished cells once more")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}, and run nothing")
    chosen = parser.parse_args()
    records = read_records()
    rows = [_FOUR, _FIVE, *(attack for attack in ATTACKS if chosen.only in attack)]
    for row, column in [] if chosen.write else [(row, column) for row in rows for column in chosen.columns]:
        key = f"{row} | {column}"
        if key not in records or (chosen.again and row in ATTACKS):
            records[key] = run_cell(row, column)
            print(f"{key}: {records[key]}", flush=True)
            RECORDS.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(RECORDS, json.dumps({name: asdict(each) for name, each in records.items()}, indent=1) + "\n")
    if chosen.write:
        write_table(PAGE, _BEGIN, _END, table(records))
    print(table(records))


def read_records() -> Records:
    """Return the outcomes of the finished cells."""
    found = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    return {name: Outcome(**facts) for name, facts in found.items()}


def run_cell(row: str, column: str) -> Outcome:
    """Run one cell."""
    settings, masks = COLUMNS[column]
    with tempfile.TemporaryDirectory() as folder:
        attack = row if row in ATTACKS else None
        return run_attacked(settings(), attack, masks, Path(folder) / "run", without_bad=row == _FOUR)


def table(records: Records) -> str:
    """Return the finished cells as a Markdown table, one row for each attack."""
    columns = [column for column in COLUMNS if f"{_FOUR} | {column}" in records]
    lines = [f"| attack | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for row in (_FOUR, _FIVE, *ATTACKS):
        cells = [cell(records.get(f"{row} | {column}"), records.get(f"{_FOUR} | {column}")) for column in columns]
        lines.append(f"| {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(outcome: Outcome | None, honest: Outcome | None) -> str:
    """Return an outcome in words: bold where it is more than two points below the honest sites alone.

    Args:
        outcome: of the cell; None where it was not run.
        honest: of the four honest sites alone.
    """
    if outcome is None or honest is None:
        return "not run"
    held = outcome.accuracy >= honest.accuracy - WITHIN
    text = f"{outcome.accuracy:.1f}" if held else f"**{outcome.accuracy:.1f}**"
    facts = [f"{outcome.undone} undone"] if outcome.undone else []
    facts += [f"bad site out of {outcome.left_out}"] if outcome.left_out else []
    facts += [f"another out of {outcome.blamed}"] if outcome.blamed else []
    facts += ["stopped"] if outcome.stopped else []
    return f"{text} ({', '.join(facts)})" if facts else text


if __name__ == "__main__":
    main()
