"""Fourteen attacks by one site of five, over ten rounds, with and without bounds, masks and robust means.

python -m benchmarks.attacks            # the table of docs/security.md: about twenty minutes
python -m benchmarks.attacks --only x1000
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.attacks.attacked_run import Outcome, attack_settings, run_attacked
from benchmarks.attacks.site_attacks import ATTACKS
from rofl.config.schema import Experiment

WITHIN = 2.0  # points of accuracy below the four honest sites alone

# name -> settings, and whether sums are masked
COLUMNS: dict[str, tuple[Callable[[], Experiment], bool]] = {
    "no bounds": (lambda: attack_settings(masks=False, bounds=False), False),
    "bounds": (lambda: attack_settings(masks=False), False),
    "bounds and masks": (lambda: attack_settings(masks=True), True),
    "bounds and median": (lambda: attack_settings(masks=False, server__robust="median"), False),
    "bounds and krum": (lambda: attack_settings(masks=False, server__robust="krum"), False),
}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="attacks whose name has this text")
    parser.add_argument("--columns", nargs="*", default=list(COLUMNS), choices=list(COLUMNS))
    chosen = parser.parse_args()
    print(f"| attack | {' | '.join(chosen.columns)} |\n|---|{'---|' * len(chosen.columns)}")
    honest = [row(column, None, without_bad=True) for column in chosen.columns]
    print(f"| *four honest sites alone* | {' | '.join(f'{each.accuracy:.1f}' for each in honest)} |", flush=True)
    five = [row(column, None) for column in chosen.columns]
    print(f"| *five honest sites* | {' | '.join(f'{each.accuracy:.1f}' for each in five)} |", flush=True)
    for attack in ATTACKS:
        if chosen.only in attack:
            outcomes = [row(column, attack) for column in chosen.columns]
            cells = [cell(each, alone.accuracy) for each, alone in zip(outcomes, honest, strict=True)]
            print(f"| {attack} | {' | '.join(cells)} |", flush=True)


def row(column: str, attack: str | None, without_bad: bool = False) -> Outcome:
    """Run one cell."""
    settings, masks = COLUMNS[column]
    with tempfile.TemporaryDirectory() as folder:
        return run_attacked(settings(), attack, masks, Path(folder) / "run", without_bad)


def cell(outcome: Outcome, honest: float) -> str:
    """Return an outcome in words: bold where it is more than two points below the honest sites alone."""
    text = f"{outcome.accuracy:.1f}" if outcome.accuracy >= honest - WITHIN else f"**{outcome.accuracy:.1f}**"
    facts = [f"{outcome.undone} undone"] if outcome.undone else []
    facts += [f"bad site out of {outcome.left_out}"] if outcome.left_out else []
    facts += [f"another out of {outcome.blamed}"] if outcome.blamed else []
    facts += ["stopped"] if outcome.stopped else []
    return f"{text} ({', '.join(facts)})" if facts else text


if __name__ == "__main__":
    main()
