"""Time to accuracy, and how much of a run is not training."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.speed.section import Aim, Section

GOAL = 95.0  # per cent
ROUNDS = 30
OUTSIDE = 0.05
HOW = f"""`rofl run mnist-lite --set noise.ratio=0.4`, from the start of the process to its end: imports, data, workers,
{ROUNDS} rounds, evaluation on 10,000 images after every one, checkpoints, the audit of all labels, the page. Evaluation
runs beside the next round, on workers that wait for its last client; where it takes longer than that, it counts as the
rest."""


def timed_run(folder: Path) -> tuple[float, list[tuple[float, dict]], float]:
    """`rofl run mnist-lite` as a user starts it: seconds of all, each line with its time, and seconds of training."""
    command = [sys.executable, "-m", "rofl", "run", "mnist-lite", "--set", "noise.ratio=0.4", "--out", str(folder)]
    started, seen = time.perf_counter(), list[tuple[float, dict]]()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        path = folder / "metrics.jsonl"
        while process.poll() is None:
            lines = path.read_text().splitlines(keepends=True) if path.is_file() else []
            new = [line for line in lines[len(seen) :] if line.endswith("\n")]
            seen += [(time.perf_counter() - started, json.loads(line)) for line in new]
            time.sleep(0.1)
        if process.returncode != 0:
            raise RuntimeError(process.stderr.read() if process.stderr else "")
    return time.perf_counter() - started, seen, sum(line["seconds"] for _, line in seen)


def measure() -> Section:
    """One run of 30 rounds with one worker for each core."""
    title = "Time to accuracy"
    if "ROFL_DATA" not in os.environ:
        return Section(title, "Not measured: ROFL_DATA does not say where MNIST is.", ("",), [], [])
    with tempfile.TemporaryDirectory() as place:
        whole, lines, training = timed_run(Path(place) / "run")
    there = next((spent for spent, line in lines if (line["accuracy"] or 0) >= GOAL), float("nan"))
    first = next((line["round"] for _, line in lines if (line["accuracy"] or 0) >= GOAL), 0)
    outside = 1 - training / whole
    rows = [
        [f"until {GOAL:g} % is known, in round {first}", f"{there:.1f}"],
        [f"training, {ROUNDS} rounds, until the last client of each has answered", f"{training:.1f}"],
        ["all the rest", f"{whole - training:.1f}"],
        ["the whole command", f"{whole:.1f}"],
        ["accuracy of the last round, per cent", f"{lines[-1][1]['accuracy']:.1f}"],
    ]
    aims = [Aim("share of the run outside training", outside, OUTSIDE, most=True)]
    return Section(title, HOW, ("what", "seconds"), rows, aims)


if __name__ == "__main__":
    print(measure().markdown())
