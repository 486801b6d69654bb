"""Comparisons: runs of several methods and seeds in one folder, and the means of each method."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TypeAlias

from rofl.config.schema import Experiment
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.training.loop import Listener
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run, resume, run

# Called before each run with its experiment and folder; gives the listener of that run, and is closed after it.
RunFollower: TypeAlias = Callable[[Experiment, Path], AbstractContextManager[Listener | None]]


@dataclass(frozen=True)
class ComparisonRow:
    """The means of one method over its runs.

    Attributes:
        method: The method's name.
        seeds: The number of runs.
        accuracy: Mean of the runs' test accuracies, in per cent; None if none was measured.
        spread: Sample standard deviation of these; 0 for a single run.
        precision: Mean precision of the labels flagged as wrong; None if the true labels are unknown.
        recall: Mean recall of the labels flagged as wrong.
        seconds_per_round: Mean duration of a round.
    """

    method: str
    seeds: int
    accuracy: float | None
    spread: float
    precision: float | None
    recall: float | None
    seconds_per_round: float


@dataclass(frozen=True)
class Comparison:
    """The finished runs of a comparison, and their folder."""

    folder: Path
    runs: list[Run]

    @property
    def rows(self) -> list[ComparisonRow]:
        """One row per method, in the order in which the methods first appear."""
        summaries = [each.summary for each in self.runs]
        methods = dict.fromkeys(summary.method for summary in summaries)
        return [_row(name, [summary for summary in summaries if summary.method == name]) for name in methods]


def compare(
    experiments: Sequence[Experiment],
    out: Path | str | None = None,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    follow: RunFollower | None = None,
) -> Comparison:
    """Run experiments one after the other, each into its own folder; finished runs are kept.

    The folder of a run is `<out>/<method>-s<seed>`. An interrupted run is continued, so the same call can be repeated
    until all runs are finished.

    Args:
        experiments: The experiments, such as `[preset("digits", method=m, seed=s) for s in range(3) for m in METHODS]`.
        out: The folder of the comparison; `runs/compare-<name of the first experiment>` if None.
        workers: Client processes; one per core if None, 0 for none.
        data_dir: The folder of published data sets; $ROFL_DATA if None.
        follow: Called before each run with its experiment and folder; returns a context manager that gives the run's
            listener, such as `rofl.tracking.follow` with the trackers' names filled in.

    Returns:
        All runs in the order of `experiments`.

    Raises:
        UserError: There are no experiments, two would share a folder, or a folder holds a run with other settings.
    """
    if not experiments:
        raise UserError("A comparison needs at least one experiment.", "rofl compare digits")
    folder = Path(out) if out is not None else Path("runs") / f"compare-{safe_names([experiments[0].name])[0]}"
    paths = [folder / f"{safe_names([each.method_name])[0]}-s{each.seed}" for each in experiments]
    known: dict[Path, Experiment] = {}
    for path, experiment in zip(paths, experiments, strict=True):  # all of them are checked before the first one runs
        if RunDir(path).exists():
            known.setdefault(path, RunDir(path).read_experiment())
        if known.setdefault(path, experiment) != experiment:
            raise UserError(f"{path} holds a run with other settings.", "another --out")
    runs = []
    for path, experiment in zip(paths, experiments, strict=True):
        with follow(experiment, path) if follow is not None else nullcontext() as listener:
            if RunDir(path).exists():
                runs.append(resume(path, workers=workers, data_dir=data_dir, listener=listener))
            else:
                runs.append(run(experiment, path, workers=workers, data_dir=data_dir, listener=listener))
    return Comparison(folder, runs)


def _row(method: str, summaries: Sequence[RunSummary]) -> ComparisonRow:
    accuracies = [summary.test_accuracy for summary in summaries if summary.test_accuracy is not None]
    return ComparisonRow(
        method=method,
        seeds=len(summaries),
        accuracy=_mean_known(accuracies),
        spread=stdev(accuracies) if len(accuracies) > 1 else 0.0,
        precision=_mean_known([summary.precision for summary in summaries]),
        recall=_mean_known([summary.recall for summary in summaries]),
        seconds_per_round=mean(summary.seconds_per_round for summary in summaries),
    )


def _mean_known(values: Sequence[float | None]) -> float | None:
    """Return the mean of the known values, or None if there are none."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None
