"""What experiments will cost on this machine, from a few timed steps of their networks."""

import time
from collections.abc import Iterable
from functools import cache

import torch

from rofl.config.schema import Experiment
from rofl.models import build
from rofl.simulation.client import single_thread

_SETS: dict[str, tuple[int, int, tuple[int, int, int], int]] = {  # training and test images, shape, classes
    "digits": (1437, 360, (1, 8, 8), 10),
    "mnist": (60_000, 10_000, (1, 28, 28), 10),
    "cifar10": (50_000, 10_000, (3, 32, 32), 10),
    "clothing1m": (1_000_000, 10_526, (3, 224, 224), 14),
    "covidx": (15_000, 300, (1, 112, 112), 3),
    "covidx_mini": (247, 26, (1, 112, 112), 2),
}
_LAST = 10  # rounds that are always evaluated
_FORWARD = 0.33  # what a pass without gradient costs of one with it
_NETWORKS = {"coteaching": 2}  # trained by a method
_PIXELS = 4_000_000  # in a timed batch, at most: a step of ResNet-50 takes seconds


def core_seconds(experiments: Iterable[Experiment]) -> float:
    """Seconds on one core for all of them; an estimate, good to a factor of about 1.5."""
    return sum(map(_core_seconds, experiments))


def _core_seconds(experiment: Experiment) -> float:
    train, test, shape, classes = _SETS[experiment.data.name]
    train, test = min(train, experiment.data.train or train), min(test, experiment.data.test or test)
    step = _seconds_per_image(experiment.model.name, experiment.model.width, shape, classes, experiment.method["batch"])
    passes = experiment.rounds * experiment.method["epochs"] * experiment.cohort / experiment.clients
    evaluations = experiment.rounds / experiment.evaluate_every + min(_LAST, experiment.rounds)
    trained = passes * train * _NETWORKS.get(experiment.method["name"], 1)
    return step * float(trained + _FORWARD * (min(evaluations, experiment.rounds) * test + train))


@cache
def _seconds_per_image(name: str, width: float, shape: tuple[int, int, int], classes: int, batch: int) -> float:
    """One step of training, on one core, over its images."""
    channels, height, across = shape
    count = max(2, min(batch, _PIXELS // (channels * height * across * 10)))
    net = build(name, shape, classes, width, seed=0)
    images = torch.zeros(count, *shape).contiguous(memory_format=torch.channels_last)
    times = []
    with single_thread():
        for _ in range(3):
            started = time.perf_counter()
            net(images)[0].logsumexp(dim=1).sum().backward()
            times.append(time.perf_counter() - started)
    return min(times) / count
