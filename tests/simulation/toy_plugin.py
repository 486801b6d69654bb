"""A method, a model and a data set of somebody else, as `tests.simulation.toy_plugin:FedProx` and so on."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset, Dataset
from rofl.data.sources.digits import load_digits
from rofl.methods import Method, RoundContext, ServerState, Update
from rofl.methods.local_sgd import FusedSGD
from rofl.methods.weights import fedavg, model_weights, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class FedProx(Method):
    """Li et al. 2020: FedAvg whose clients stay near the weights that they were sent. No base class but Method."""

    mu: float = 0.1
    lr: float = 0.05
    epochs: int = 1

    def init(self, net: Network) -> ServerState:
        return ServerState(model_weights(net))

    def zero_update(self, server_state: ServerState) -> Update:
        return Update(zeros_like(server_state.model), 0.0)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        optimizer = FusedSGD(net.parameters(), lr=self.lr, momentum=0.0, weight_decay=0.0)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        start = [server_state.model[name] for name, _ in net.named_parameters()]
        net.train()
        for _ in range(self.epochs):
            for index in data.batches(16, order):
                logits, _ = net(data.inputs(index, augment))
                distance = sum(
                    (weight - before).square().sum() for weight, before in zip(net.parameters(), start, strict=True)
                )
                loss = F.cross_entropy(logits, data.labels[index]) + self.mu / 2 * distance
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        seen = {"rounds": client_state.get("rounds", torch.zeros(1)) + 1}
        return Update(weight_update(net, server_state, len(data)), float(len(data))), seen

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        return ServerState(fedavg(server_state, total))


@dataclass(frozen=True)
class Unfinished(Method):
    """Lacks most of a method."""

    def init(self, net: Network) -> ServerState:
        return ServerState(model_weights(net))


class NoDataclass:
    """Is no method at all."""


def plain_torch(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A model as anybody writes it: logits, and nothing known of rofl."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(), nn.Linear(channels * height * width, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, classes)
    )


class TwoOutputs(nn.Module):
    """A model with a width that gives logits and features."""

    def __init__(self, shape: tuple[int, int, int], classes: int, width: float) -> None:
        super().__init__()
        self.body = nn.Conv2d(shape[0], max(1, round(8 * width)), 3)
        self.last = nn.Linear(self.body.out_channels, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.body(x).relu().mean(dim=(2, 3))
        return self.last(features), features


def no_module(shape: tuple[int, int, int], classes: int) -> str:
    """Not what is asked for."""
    return f"a model for {classes} classes"


def even_digits(folder: Path) -> Dataset:
    """Of scikit-learn's digits the even ones, as five classes."""
    digits = load_digits()
    train, test = digits.train_labels % 2 == 0, digits.test_labels % 2 == 0
    return replace(
        digits,
        name="even digits",
        classes=tuple("02468"),
        train=digits.train[train],
        train_labels=digits.train_labels[train] // 2,
        test=digits.test[test],
        test_labels=digits.test_labels[test] // 2,
    )
