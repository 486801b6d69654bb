"""Estimates the cost of a plan on this machine from a few timed training steps of its methods and networks."""

from collections.abc import Iterable
from dataclasses import dataclass

from rofl.config.schema import Experiment
from rofl.reproduce.plan import Plan
from rofl.reproduce.run_cache import RunCache
from rofl.training.time_estimate import PUBLISHED
from rofl.training.time_estimate import core_seconds as run_core_seconds


@dataclass(frozen=True)
class PlanCost:
    """The estimated cost of a plan on this machine.

    Attributes:
        runs: The number of runs; cells that show different measures of one run count once.
        finished: The number of finished runs.
        core_seconds: Seconds that the other runs will take on one core, accurate to within a factor of about 1.5.
    """

    runs: int
    finished: int
    core_seconds: int


def plan_cost(plan: Plan) -> PlanCost:
    """Return the cost of a plan on this machine, from a timed training step of each method and network."""
    runs = plan.experiments()
    finished = RunCache(plan.cells_dir)
    missing = [experiment for experiment in runs if not finished.is_finished(experiment)]
    return PlanCost(len(runs), len(runs) - len(missing), round(core_seconds(missing)))


def core_seconds(experiments: Iterable[Experiment]) -> float:
    """Return the seconds that experiments will take on one core, accurate to within a factor of about 1.5."""
    return sum(run_core_seconds(experiment, PUBLISHED[experiment.data.name]) for experiment in experiments)
