"""The same number of gradient steps for every method: a method with more steps per round gets fewer rounds.

The cost of a round is measured, not declared: the number of samples that pass backward through a network, per sample of
a local epoch. Plain FedAvg has 1, co-teaching with its two networks 2.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_hook

from rofl.config.overrides import apply_overrides
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.rng import generator
from rofl.data import ClientDataset, Transform
from rofl.methods.base import RoundContext
from rofl.models import Network
from rofl.reproduce.scales import fewer_rounds
from rofl.simulation.client import run_client
from rofl.simulation.network_spec import NetworkSpec

# hyper-parameters that count rounds, of all methods
_COUNTS_ROUNDS = ("t_pl", "start", "last_stage", "ramp", "beta_ramp", "warmup", "lr_decay_every")
_SHAPE, _CLASSES, _BATCHES = (1, 8, 8), 10, 2  # of the client on whose samples gradients are counted


def with_equal_steps(experiment: Experiment) -> Experiment:
    """Return the experiment with as many rounds as plain FedAvg's gradient steps allow; the same if a round costs 1.

    Hyper-parameters that count rounds are scaled down too.
    """
    cost = gradient_passes(experiment)
    if cost == 1:
        return experiment
    fewer = fewer_rounds(experiment, max(1, experiment.rounds // cost), _COUNTS_ROUNDS)
    return parse_experiment(apply_overrides(experiment.model_dump(exclude_none=True), fewer))


def gradient_passes(experiment: Experiment) -> int:
    """Return the number of forward and backward passes per sample in a local epoch, at least 1.

    It is the larger of the counts in the first and the last round, rounded up, on a client with random images.
    """
    return _passes(_Counted(experiment))


class _Counted:
    """An experiment, hashed by its method's settings, so that equal ones are measured once."""

    def __init__(self, experiment: Experiment) -> None:
        self.experiment = experiment
        self.key = (repr(sorted(experiment.method.items(), key=str)), experiment.rounds)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Counted) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@cache
def _passes(counted: _Counted) -> int:
    experiment = counted.experiment
    method = experiment.build_method()
    batch, epochs = int(experiment.method.get("batch", 50)), int(experiment.method.get("epochs", 1))
    count = _BATCHES * batch
    rows = torch.arange(count)
    pixels = torch.randint(256, (count, *_SHAPE), dtype=torch.uint8, generator=generator(0, "budget"))
    data = ClientDataset(pixels, rows, rows % _CLASSES, _CLASSES, Transform((0.5,), (0.25,)))
    net = NetworkSpec("mlp", _SHAPE, _CLASSES, 0.25, 0).build()
    most = 1
    for index in (1, experiment.rounds):
        server_state = method.init(net)
        with _counting_gradients() as gradients:
            run_client(method, net, server_state, {}, data, RoundContext(index, 0, 0))
        most = max(most, math.ceil(sum(gradients) / (epochs * count)))
    return most


@contextmanager
def _counting_gradients() -> Iterator[list[int]]:
    """Yield a list that receives the number of samples of each gradient at the logits of any network."""
    gradients: list[int] = []

    def on_forward(module: Any, inputs: Any, output: Any) -> None:
        if isinstance(module, Network) and isinstance(output, tuple) and output[0].requires_grad:
            output[0].register_hook(on_backward)

    def on_backward(gradient: Tensor) -> None:
        gradients.append(len(gradient))

    handle = register_module_forward_hook(on_forward)
    try:
        yield gradients
    finally:
        handle.remove()
