"""The leaderboard of a benchmark: accuracies at equal gradient steps and at equal time, rankings, and costs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from rofl.config.schema import Experiment
from rofl.data.noise_spec import NoiseSpec
from rofl.reproduce.benchmark_plan import BenchmarkPlan
from rofl.reproduce.cell_usage import read_usage
from rofl.reproduce.equal_budget import gradient_passes
from rofl.reproduce.paper_table import TableCell
from rofl.reproduce.ranking import Ranking, rank_methods
from rofl.reproduce.results import TableResult, collect_results
from rofl.reproduce.run_cache import RunCache
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir

REFERENCE = "plain"  # the reference for time in the second ranking
_LAST_PART = 5  # accuracy is the mean over the last fifth of the rounds


@dataclass(frozen=True)
class MethodCost:
    """The costs of a method, over its finished runs.

    Attributes:
        name: The method's row.
        told_noise: Whether it is given the noise ratio.
        passes: Forward and backward passes of a sample in a local epoch; plain has 1.
        rounds: Rounds at equal gradient steps.
        rounds_in_time: Of these, the rounds within the training time of plain.
        round_seconds: The mean over all rounds but the first, times the run's share of a core, so that other load on
            the machine does not count; the median over runs.
        round_bytes: Traffic of a round, up and down; the mean over runs.
        state_bytes: The size of a client state, the mean over clients.
        memory: The peak memory of a run's process in bytes, above its start, median over runs; None if unknown.
    """

    name: str
    told_noise: bool
    passes: int
    rounds: int
    rounds_in_time: int
    round_seconds: float
    round_bytes: float
    state_bytes: float
    memory: float | None


@dataclass(frozen=True)
class Leaderboard:
    """The results of a benchmark.

    Attributes:
        plan: What was to run.
        by_steps: Accuracy in per cent of each method and setting, at equal gradient steps.
        by_time: The same, within the training time of plain.
        costs: The costs of each method with a finished run.
        steps_ranking: The ranking by `by_steps`.
        time_ranking: The ranking by `by_time`.
    """

    plan: BenchmarkPlan
    by_steps: TableResult
    by_time: TableResult
    costs: tuple[MethodCost, ...]
    steps_ranking: Ranking
    time_ranking: Ranking

    def cost(self, name: str) -> MethodCost | None:
        """Return the costs of a method; None if it has no finished run."""
        return next((cost for cost in self.costs if cost.name == name), None)

    @property
    def finished(self) -> int:
        """The number of finished runs."""
        return sum(len(cell.values) for cell in self.by_steps.cells)


def collect_leaderboard(plan: BenchmarkPlan, cache: RunCache, problems: Mapping[Path, str]) -> Leaderboard:
    """Read the finished runs of a benchmark.

    Args:
        plan: What was to run.
        cache: Where the runs are kept.
        problems: Run folder -> why it could not run.
    """
    histories = {
        run_dir.path: run_dir.read_history() for run_dir in map(cache.find, plan.experiments()) if run_dir.is_finished()
    }
    costs = _method_costs(plan, cache, histories)
    in_time = {cost.name: cost.rounds_in_time for cost in costs}

    def at_end(cell: TableCell, run_dir: RunDir) -> float | None:
        return last_accuracy(histories[run_dir.path])

    def in_equal_time(cell: TableCell, run_dir: RunDir) -> float | None:
        return last_accuracy(histories[run_dir.path][: in_time[cell.row]])

    cells = plan.table.cells
    by_steps, by_time = (
        collect_results(plan, plan.table, cells, cache, problems, measure) for measure in (at_end, in_equal_time)
    )
    return Leaderboard(plan, by_steps, by_time, costs, _rank(by_steps), _rank(by_time))


def last_accuracy(history: Sequence[RoundRecord]) -> float | None:
    """Return the mean test accuracy over the last fifth of the rounds, at least one; None if none was evaluated.

    If none of these was evaluated, the accuracy of the last evaluated round.
    """
    part = history[-max(1, len(history) // _LAST_PART) :]
    found = [record.accuracy for record in part if record.accuracy is not None]
    earlier = [record.accuracy for record in history if record.accuracy is not None]
    return fmean(found) if found else earlier[-1] if earlier else None


def _method_costs(
    plan: BenchmarkPlan, cache: RunCache, histories: Mapping[Path, Sequence[RoundRecord]]
) -> tuple[MethodCost, ...]:
    """Return the costs of all methods with a finished run; without plain, time is relative to the first method."""
    finished: dict[str, list[tuple[Experiment, RunDir]]] = {}
    for (row, _), runs in plan.runs.items():
        found = [(run, cache.find(run)) for run in runs if cache.is_finished(run)]
        finished.setdefault(row, []).extend(found)
    finished = {row: found for row, found in finished.items() if found}
    seconds = {row: _round_seconds([(run, histories[run.path]) for _, run in found]) for row, found in finished.items()}
    if not finished:
        return ()
    reference = REFERENCE if REFERENCE in finished else next(iter(finished))
    allowed = finished[reference][0][0].rounds * seconds[reference]
    return tuple(_method_cost(row, found, seconds[row], allowed) for row, found in finished.items())


def _method_cost(name: str, found: Sequence[tuple[Experiment, RunDir]], seconds: float, allowed: float) -> MethodCost:
    """Return the costs of a method.

    Args:
        name: Its row.
        found: Its finished runs.
        seconds: The time of a round.
        allowed: The training time that every method has, in seconds.
    """
    experiment = found[0][0]
    with_ratios = [experiment.model_copy(update={"noise": NoiseSpec(ratio=ratio)}) for ratio in (0.1, 0.2)]
    summaries = [run_dir.read_summary() for _, run_dir in found]
    states = [path.stat().st_size for _, run_dir in found for path in run_dir.states.glob("*.safetensors")]
    memory = [usage for _, run_dir in found if (usage := read_usage(run_dir.path).memory) is not None]
    return MethodCost(
        name=name,
        told_noise=with_ratios[0].build_method() != with_ratios[1].build_method(),
        passes=gradient_passes(experiment),
        rounds=experiment.rounds,
        rounds_in_time=min(experiment.rounds, max(1, math.floor(allowed / seconds + 1e-9) if seconds else 1)),
        round_seconds=seconds,
        round_bytes=fmean((one.bytes_up + one.bytes_down) / one.rounds for one in summaries),
        state_bytes=fmean(states) if states else 0.0,
        memory=median(memory) if memory else None,
    )


def _round_seconds(found: Sequence[tuple[RunDir, Sequence[RoundRecord]]]) -> float:
    """Return the seconds of a round: the median over runs, of those with a known share of a core if there are any.

    The first round of a run includes the setup and does not count.
    """
    seconds = [fmean(record.seconds for record in (history[1:] or history)) for _, history in found]
    shares = [read_usage(run_dir.path).core_share for run_dir, _ in found]
    known = [mean * share for mean, share in zip(seconds, shares, strict=True) if share is not None]
    return median(known or seconds)


def _rank(result: TableResult) -> Ranking:
    """Return the ranking over the settings in which any method has a value; each cell counts by its mean over seeds."""
    values: dict[str, dict[str, float]] = {row: {} for row in result.rows}
    for cell in result.cells:
        if cell.mean is not None:
            values[cell.cell.row][cell.cell.column] = cell.mean
    settings = [column for column in result.columns if any(column in found for found in values.values())]
    return rank_methods({row: found for row, found in values.items() if found}, settings)
