"""Estimates the time of a run on this machine from a few timed training steps of its method and network."""

import time
from dataclasses import dataclass, field, replace
from functools import cache

import torch

from rofl.config.schema import Experiment
from rofl.data import ClientDataset, Dataset, Transform
from rofl.data.transforms import Identity
from rofl.methods.base import RoundContext
from rofl.simulation.client import run_client
from rofl.simulation.device import devices
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.worker_pool import default_workers
from rofl.training.network_choice import network_for_shape
from rofl.training.records import LAST_ROUNDS

_FORWARD_SHARE = 0.33  # the cost of a forward pass, as a share of a training step
_TIMED_BATCHES = 2
_FIRST_BATCH = 4  # samples in the first batches that are timed
_LONG = 0.2  # seconds above which these suffice: a full batch of a large network takes many seconds
_BATCH = 50  # of a method that has no setting for it


@dataclass(frozen=True)
class DataSize:
    """The size of the data: training and test samples, their shape, and the classes."""

    train: int
    test: int
    shape: tuple[int, int, int]
    classes: int
    is_table: bool = False

    @classmethod
    def of(cls, images: Dataset) -> "DataSize":
        """Return the size of a data set."""
        return cls(
            len(images.train_labels), len(images.test_labels), images.shape, len(images.classes), images.is_table
        )


PUBLISHED = {
    "digits": DataSize(1437, 360, (1, 8, 8), 10),
    "mnist": DataSize(60_000, 10_000, (1, 28, 28), 10),
    "fashion_mnist": DataSize(60_000, 10_000, (1, 28, 28), 10),
    "kmnist": DataSize(60_000, 10_000, (1, 28, 28), 10),
    "emnist": DataSize(112_800, 18_800, (1, 28, 28), 47),
    "emnist_letters": DataSize(124_800, 20_800, (1, 28, 28), 26),
    "emnist_digits": DataSize(240_000, 40_000, (1, 28, 28), 10),
    "svhn": DataSize(73_257, 26_032, (3, 32, 32), 10),
    "cifar10": DataSize(50_000, 10_000, (3, 32, 32), 10),
    "cifar100": DataSize(50_000, 10_000, (3, 32, 32), 100),
    "cifar100_coarse": DataSize(50_000, 10_000, (3, 32, 32), 20),
    "clothing1m": DataSize(1_000_000, 10_526, (3, 224, 224), 14),
    "covidx": DataSize(15_000, 300, (1, 112, 112), 3),
    "covidx_mini": DataSize(247, 26, (1, 112, 112), 2),
}


def estimate_seconds(experiment: Experiment, size: DataSize, workers: int | None = None) -> float:
    """Return the seconds that a run will take on this machine, accurate to within a factor of about 1.5.

    Args:
        experiment: the settings.
        size: the size of its data.
        workers: client processes; the default number if None.
    """
    at_once = max(1, min(default_workers() if workers is None else workers, experiment.cohort))
    return core_seconds(experiment, size) / at_once


def core_seconds(experiment: Experiment, size: DataSize) -> float:
    """Return the seconds that a run will take on one core or device, on which the clients train in turn."""
    data = experiment.data
    train, test = min(size.train, data.train or size.train), min(size.test, data.test or size.test)
    each = data.samples_per_client if data.partition == "sampled" else train / experiment.clients
    trained = experiment.rounds * int(experiment.method.get("epochs", 1)) * experiment.cohort * each
    evaluations = min(experiment.rounds / experiment.evaluate_every + LAST_ROUNDS, experiment.rounds)
    step = _Step.of(experiment, size)
    features = _feature_seconds(step.frozen) * (train + test) if step.frozen is not None else 0.0
    return features + _sample_seconds(step) * (trained + _FORWARD_SHARE * (evaluations * test + train))


@dataclass(frozen=True)
class _Step:
    """The key of a timed training step: equal steps are timed once."""

    method: str
    network: NetworkSpec
    batch: int
    is_table: bool
    experiment: Experiment = field(compare=False)
    frozen: NetworkSpec | None = None  # whose features are trained on

    @classmethod
    def of(cls, experiment: Experiment, size: DataSize) -> "_Step":
        """Return the step of an experiment on data of this size, with random weights, which take the same time."""
        network = network_for_shape(experiment, size.shape, size.classes).without_weights()
        batch, frozen = int(experiment.method.get("batch", _BATCH)), None
        if network.freeze:
            frozen = replace(network.whole(), weights="", seed=0)
            network = frozen.last_layer(frozen.build().feature_size)
        network = replace(network, seed=0, base="")
        is_table = size.is_table or frozen is not None
        return cls(experiment.method_name, network, batch, is_table, experiment, frozen)


@cache
def _sample_seconds(step: _Step) -> float:
    """Return the seconds per sample of a client's training, from an epoch of two batches."""
    _time_client(step, _FIRST_BATCH)  # prepares torch
    seconds = _time_client(step, _FIRST_BATCH)
    if seconds > _LONG or step.batch <= _FIRST_BATCH:
        return seconds / (_TIMED_BATCHES * _FIRST_BATCH)
    return _time_client(step, step.batch) / (_TIMED_BATCHES * step.batch)


@cache
def _feature_seconds(network: NetworkSpec) -> float:
    """Return the seconds per sample of a forward pass."""
    net = network.build().to(devices()[0]).predictor()
    seconds = []
    with torch.no_grad():
        for _ in range(2):  # the first pass includes torch's setup
            started = time.process_time() if net.device.type == "cpu" else time.perf_counter()
            net(torch.zeros(_FIRST_BATCH, *network.shape, device=net.device))
            seconds.append((time.process_time() if net.device.type == "cpu" else time.perf_counter()) - started)
    return seconds[-1] / _FIRST_BATCH


def _time_client(step: _Step, batch: int) -> float:
    """Return the seconds of one local epoch of a client with two batches of blank samples."""
    settings = {**step.experiment.method, "batch": batch, "epochs": 1}
    known = {key: value for key, value in settings.items() if key in step.experiment.method}
    method = step.experiment.model_copy(update={"method": known}).build_method()
    device, channels, count = devices()[0], step.network.shape[0], _TIMED_BATCHES * batch
    net = step.network.build().to(device)
    pixels = torch.zeros(count, *step.network.shape, dtype=torch.float32 if step.is_table else torch.uint8)
    rows = torch.arange(count, device=device)
    transform = Identity((), ()) if step.is_table else Transform((0.5,) * channels, (0.25,) * channels)
    data = ClientDataset(pixels.to(device), rows, rows % step.network.classes, step.network.classes, transform)
    # on a CPU the process time: independent of other load on the machine
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    state = method.init(net)
    started = clock()
    run_client(method, net, state, {}, data, RoundContext(step.experiment.rounds, 0, 0))
    return clock() - started
