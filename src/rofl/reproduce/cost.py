"""What a plan will cost on this machine, estimated from a few timed training steps of its networks."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import torch

from rofl.config.schema import Experiment
from rofl.models import build
from rofl.reproduce.plan import Plan
from rofl.reproduce.run_cache import RunCache
from rofl.simulation.client import single_thread
from rofl.training.records import LAST_ROUNDS

_DATASETS: dict[str, tuple[int, int, tuple[int, int, int], int]] = {  # training and test images, shape, classes
    "digits": (1437, 360, (1, 8, 8), 10),
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "clothing1m": (1_000_000, 10_526, (3, 224, 224), 14),
    "covidx": (15_000, 300, (1, 112, 112), 3),
    "covidx_mini": (247, 26, (1, 112, 112), 2),
}
_FORWARD_SHARE = 0.33  # the cost of a forward pass, as a share of a training step
_NETWORKS = {"coteaching": 2}  # networks that a method trains, where it is not one
_DEFAULT_BATCH = 50  # of a method that has no setting `batch`
_MAX_VALUES = 4_000_000  # values in a timed batch: a step of ResNet-50 takes seconds


@dataclass(frozen=True)
class PlanCost:
    """What a plan costs on this machine.

    Attributes:
        runs: The runs of the plan; cells that show different measures of the same run count once.
        finished: Those of them that are finished already.
        core_seconds: Seconds that the others will take on one core, good to a factor of about 1.5.
    """

    runs: int
    finished: int
    core_seconds: int


def plan_cost(plan: Plan) -> PlanCost:
    """Return what a plan will cost here; a training step of each of its networks is timed."""
    runs = plan.experiments()
    finished = RunCache(plan.cells_dir)
    missing = [experiment for experiment in runs if not finished.is_finished(experiment)]
    return PlanCost(len(runs), len(runs) - len(missing), round(core_seconds(missing)))


def core_seconds(experiments: Iterable[Experiment]) -> float:
    """Return the seconds that experiments will take on one core, good to a factor of about 1.5."""
    return sum(map(_core_seconds, experiments))


def _core_seconds(experiment: Experiment) -> float:
    train, test, shape, classes = _DATASETS[experiment.data.name]
    train, test = min(train, experiment.data.train or train), min(test, experiment.data.test or test)
    batch = experiment.method.get("batch", _DEFAULT_BATCH)
    step = _seconds_per_image(experiment.model.name, experiment.model.width, shape, classes, batch)
    passes = experiment.rounds * experiment.method.get("epochs", 1) * experiment.cohort / experiment.clients
    evaluations = experiment.rounds / experiment.evaluate_every + min(LAST_ROUNDS, experiment.rounds)
    trained = passes * train * _NETWORKS.get(experiment.method_name, 1)
    return step * float(trained + _FORWARD_SHARE * (min(evaluations, experiment.rounds) * test + train))


@cache
def _seconds_per_image(name: str, width: float, shape: tuple[int, int, int], classes: int, batch: int) -> float:
    """Return the seconds of a training step on one core, divided by its images."""
    channels, height, across = shape
    count = max(2, min(batch, _MAX_VALUES // (channels * height * across * 10)))
    net = build(name, shape, classes, width, seed=0)
    images = torch.zeros(count, *shape).contiguous(memory_format=torch.channels_last)
    times = []
    with single_thread():
        for _ in range(3):
            started = time.perf_counter()
            net(images)[0].logsumexp(dim=1).sum().backward()
            times.append(time.perf_counter() - started)
    return min(times) / count
