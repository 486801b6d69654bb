"""Measure the time to an accuracy, and the share of a run that is not training."""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.result_table import Aim, Section

GOAL = 95.0  # per cent
ROUNDS = 30
HOW = f"""`rofl run mnist-lite --set noise.ratio=0.4`, from the start of the process to its end: imports, data, workers,
{ROUNDS} rounds, evaluation on 10,000 images after every fifth, a checkpoint after every one, the audit of all labels,
the page. Evaluation runs beside the next round, on workers that wait for its last client; only what is left of it then
counts as evaluation. The first round's excess over the median, when workers start, counts as start-up."""
WHY = """These parts are nearly constant: in 100 rounds their share is a third of this. The start is torch's import,
here and then in the workers."""


@dataclass(frozen=True)
class Course:
    """Times of events in a run, in seconds since the command was started."""

    lines: list[dict[str, Any]]  # of metrics.jsonl
    seen: list[float]  # when each of them was there
    first: float  # when there was a checkpoint
    end: float

    @property
    def training(self) -> float:
        """Seconds of all rounds; the first counts as long as the median."""
        return median(self._seconds) + sum(self._seconds[1:])

    @property
    def start(self) -> float:
        """Seconds until the first round, and its excess over the median."""
        return self.first - median(self._seconds)

    @property
    def between(self) -> float:
        """Seconds from the end of the first round to the last line, without the rounds."""
        return self.seen[-1] - self.first - sum(self._seconds[1:])

    @property
    def _seconds(self) -> list[float]:
        return [line["seconds"] for line in self.lines]


def timed_run(folder: Path) -> Course:
    """Run `rofl run mnist-lite` as a user does, and return the times of its events."""
    command = [sys.executable, "-m", "rofl", "run", "mnist-lite", "--set", "noise.ratio=0.4", "--out", str(folder)]
    started, lines, seen, first = time.perf_counter(), list[dict[str, Any]](), list[float](), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        checkpoint, metrics = folder / "checkpoint.safetensors", folder / "metrics.jsonl"
        while process.poll() is None:
            now = time.perf_counter() - started
            first = first or (now if checkpoint.is_file() else 0.0)
            there = metrics.read_text().splitlines(keepends=True) if metrics.is_file() else []
            fresh = [json.loads(line) for line in there[len(lines) :] if line.endswith("\n")]
            lines, seen = lines + fresh, seen + [now] * len(fresh)
            time.sleep(0.05)
        if process.returncode != 0:
            raise RuntimeError(process.stderr.read() if process.stderr else "")
    return Course(lines, seen, first, time.perf_counter() - started)


def measure() -> Section:
    """Return the section: one run of 30 rounds with one worker per core."""
    title = "Time to accuracy"
    if "ROFL_DATA" not in os.environ:
        return Section(title, "Not measured: ROFL_DATA does not say where MNIST is.", ("",), [], [])
    with tempfile.TemporaryDirectory() as place:
        course = timed_run(Path(place) / "run")
    goals = [place for place, line in enumerate(course.lines) if (line["accuracy"] or 0) >= GOAL]
    spent = {
        f"training, {ROUNDS} rounds": course.training,
        "start-up: imports, data, workers": course.start,
        "evaluation, checkpoints, aggregation": course.between,
        "after the last round: the audit of all labels, the page": course.end - course.seen[-1],
        "the whole command": course.end,
    }
    rows = [[what, f"{seconds:.1f}", f"{100 * seconds / course.end:.1f} %"] for what, seconds in spent.items()]
    if goals:
        what = f"until {GOAL:g} % is known, after round {course.lines[goals[0]]['round']}"
        rows.append([what, f"{course.seen[goals[0]]:.1f}", ""])
    rows.append(["accuracy of the last round", f"{course.lines[-1]['accuracy']:.1f} %", ""])
    outside = (course.start + course.between) / course.end
    aims = [Aim("share of start-up, evaluation, checkpoints and aggregation", outside, 0.05, most=True)]
    return Section(title, HOW, ("what", "seconds", "share"), rows, aims, WHY)


if __name__ == "__main__":
    print(measure().markdown())
