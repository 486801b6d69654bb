"""The study behind docs/decisions/0002: which reading of the paper's open lines is the default.

Hard or soft pseudo-labels, when lambda_cen rises, and how L_cen is summed; on digits with 5 seeds and on 10,000 MNIST
images. Accuracy is measured on training images set aside (data.validation), never on the test set. Finished runs are
kept, so that the study can be stopped and started again.

    python benchmarks/readings_study.py digits --jobs 2
    python benchmarks/readings_study.py mnist --jobs 2      # needs ROFL_DATA
"""

import argparse
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean, stdev

import rofl
from rofl.training.run_dir import RunDir

NOISES = [("symmetric", 0.2), ("symmetric", 0.4), ("symmetric", 0.6), ("pair", 0.2), ("pair", 0.45)]
LATE = {"method__cen_start": 1.0}
SOFT = {"method__soft": True}
READINGS = {
    "late, soft": {**LATE, **SOFT},
    "early, soft": {**SOFT},
    "late, hard": {**LATE},
    "late, soft, per-sample mean": {**LATE, **SOFT, "method__cen_form": "sample"},
    "late, soft, literal sum": {**LATE, **SOFT, "method__cen_form": "sum"},
    "early, hard": {},
    "no L_cen, soft": {**SOFT, "method__lambda_cen": 0.0},
}
SCALES = {
    "digits": ("digits", range(5), {"data__validation": 287, "rounds": 30, "cohort": 5, "method__batch": 10}),
    "mnist": ("mnist-lite", range(1), {"data__validation": 2000, "rounds": 20, "method__t_pl": 7}),
}
BASE = {"method__cen_start": 0.0, "method__cen_rise": 1.0, "method__soft": False, "method__cen_form": "dimension"}

Cell = tuple[str, str, float, int]  # reading, kind, ratio, seed


def cells(scale: str) -> Iterator[Cell]:
    """Every run of a scale, the most telling readings first."""
    for reading in READINGS:
        for kind, ratio in NOISES:
            for seed in SCALES[scale][1]:
                yield reading, kind, ratio, seed


def folder(scale: str, cell: Cell) -> Path:
    """Where a cell's run lies."""
    reading, kind, ratio, seed = cell
    return Path("runs/study") / scale / f"{reading.replace(', ', '_').replace(' ', '-')}_{kind}{ratio}_s{seed}"


def compute(scale: str, cell: Cell) -> str:
    """Run a cell, or go on with it."""
    reading, kind, ratio, seed = cell
    name, _, changes = SCALES[scale]
    place = folder(scale, cell)
    if RunDir(place).exists():
        rofl.resume(place, workers=0)
    else:
        settings = {**BASE, **changes, **READINGS[reading], "noise__kind": kind, "noise__ratio": ratio, "seed": seed}
        rofl.run(rofl.preset(name, **settings), place, workers=0)
    return f"{place}: {RunDir(place).read_summary().test_accuracy:.2f}"


def table(scale: str) -> str:
    """The finished cells as a Markdown table: mean over seeds, and spread where there are several."""
    lines = ["| reading | " + " | ".join(f"{kind} {ratio}" for kind, ratio in NOISES) + " |", "|---" * 6 + "|"]
    for reading in READINGS:
        row = []
        for kind, ratio in NOISES:
            places = [RunDir(folder(scale, (reading, kind, ratio, seed))) for seed in SCALES[scale][1]]
            found = [place.read_summary().test_accuracy for place in places if (place.path / "summary.json").is_file()]
            spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
            row.append(f"{mean(found):.1f}{spread}" if found else "")
        lines.append(f"| {reading} | " + " | ".join(row) + " |")
    return "\n".join(lines)


def main() -> None:
    """Fill the grid, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scale", choices=SCALES)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--table", action="store_true", help="only print what is finished")
    options = parser.parse_args()
    if not options.table:
        with ProcessPoolExecutor(options.jobs) as pool:
            for future in [pool.submit(compute, options.scale, cell) for cell in cells(options.scale)]:
                print(future.result(), flush=True)
    print(table(options.scale))


if __name__ == "__main__":
    main()
