"""Local training: the optimizer, the hyper-parameters of local SGD, and sums of the metrics."""

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn
from torch.nn import Parameter

from rofl.core.losses import keep_rate
from rofl.core.tensors import zeros_like
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.methods.weights import model_weights
from rofl.models import Network


class FusedSGD:
    """SGD with the bits of `torch.optim.SGD(..., fused=True)`.

    torch's class imports its compiler first, which takes longer than a worker's first clients.

    Args:
        parameters: the weights.
        lr: learning rate.
        momentum: 0 for none.
        weight_decay: L2 penalty.
    """

    def __init__(self, parameters: Iterable[Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        self._parameters = list(parameters)
        self._rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "dampening": 0.0}
        self._momenta: list[Tensor] = []

    def zero_grad(self) -> None:
        """Set all gradients to None."""
        for parameter in self._parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update all weights that have a gradient."""
        moving: list[Tensor] = [parameter for parameter in self._parameters if parameter.grad is not None]
        gradients = [parameter.grad for parameter in moving if parameter.grad is not None]
        first = self._rates["momentum"] > 0 and not self._momenta
        if first:
            self._momenta = [torch.empty_like(parameter) for parameter in moving]  # the first step fills them
        torch._fused_sgd_(
            moving,
            gradients,
            self._momenta,
            **self._rates,
            nesterov=False,
            maximize=False,
            is_first_step=first,
            grad_scale=None,
            found_inf=None,
        )


def scheduled_share(schedule: str, index: int, rounds: int, warmup: float) -> float:
    """Return the share of the full learning rate in a round; it is above 0 even in the last round.

    Args:
        schedule: "constant", or "linear" or "cosine" for a fall towards 0 after the warm-up.
        index: the round, counted from 1.
        rounds: the number of rounds of the run.
        warmup: the share of the rounds over which the rate rises linearly.

    >>> [scheduled_share("linear", t, rounds=5, warmup=0.2) for t in (1, 2, 3, 4, 5)]
    [1.0, 1.0, 0.75, 0.5, 0.25]
    """
    rising = round(warmup * rounds)
    if index <= rising:
        return index / rising
    done = min((index - rising - 1) / max(rounds - rising, 1), 1.0)  # 0 in the first round after the warm-up
    if schedule == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1 - done if schedule == "linear" else 1.0


@dataclass(frozen=True)
class LocalSgd(Method):
    """A base class of methods with local SGD; defaults from the supplement, "Implementation details"."""

    __pydantic_config__ = ConfigDict(allow_inf_nan=False)

    lr: Annotated[float, Field(gt=0)] = 0.25  # initial learning rate, MNIST and CIFAR-10
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.5
    weight_decay: Annotated[float, Field(ge=0)] = 1e-4
    batch: Annotated[int, Field(ge=2)] = 50
    epochs: Annotated[int, Field(ge=1)] = 5  # local epochs per round
    lr_decay_every: Annotated[int, Field(ge=0)] = 0  # lr is divided by 10 every this many rounds; 0: never
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"  # over all rounds, from lr to 0
    lr_warmup: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of the rounds over which lr rises to its value
    horizon: Annotated[int, Field(ge=0)] = 0  # rounds of the run, for schedules; 0: as the experiment says

    def init(self, net: Network) -> ServerState:
        """Return the initial weights; methods with further tensors add them to `aux`."""
        return ServerState(model_weights(net))

    def zero_update(self, server_state: ServerState) -> Update:
        """Return a zero update of the weights; methods with further tensors add their zeros to `aux`."""
        return Update(zeros_like(server_state.model), 0.0)

    def centralized(self) -> Self:
        """Return the method with one local epoch per round."""
        return replace(self, epochs=1)

    def with_rounds(self, rounds: int) -> Self:
        """Return the method for a run of this many rounds, unless `horizon` is set."""
        return self if self.horizon else replace(self, horizon=rounds)

    def learning_rate(self, ctx: RoundContext) -> float:
        """Return the learning rate of a round.

        Raises:
            ValueError: there is a schedule, but the number of rounds is unknown.
        """
        rate = self.lr * 0.1 ** ((ctx.index - 1) // self.lr_decay_every) if self.lr_decay_every else self.lr
        if self.lr_schedule == "constant" and not self.lr_warmup:
            return rate
        if not self.horizon:
            raise ValueError("a learning-rate schedule needs the number of rounds: with_rounds, or horizon")
        return rate * scheduled_share(self.lr_schedule, ctx.index, self.horizon, self.lr_warmup)

    def optimizer(self, net: nn.Module, ctx: RoundContext) -> FusedSGD:
        """Return the SGD optimizer of a network; its momentum starts at zero in every round."""
        return FusedSGD(net.parameters(), self.learning_rate(ctx), self.momentum, self.weight_decay)


@dataclass(frozen=True)
class SmallLossSgd(LocalSgd):
    """A base class of methods with small-loss selection (Eq. 2)."""

    tau: Annotated[float, Field(ge=0, lt=1)] | Literal["known", "auto"] = "known"  # share left out by Eq. 2
    warmup: Annotated[int, Field(ge=0)] = 10  # T: rounds until R(t) has fallen to 1 - tau; 5 for Clothing1M

    def with_noise_rate(self, kind: str, ratio: float) -> Self:
        """Return the method with the ratio in place of tau = "known"."""
        return replace(self, tau=ratio) if self.tau == "known" else self

    def keep_rate(self, ctx: RoundContext) -> float:
        """Return R(t), the share of a batch that is selected.

        Raises:
            ValueError: tau is not a number; `with_noise_rate` replaces "known".
        """
        if isinstance(self.tau, str):
            raise ValueError(f"tau = {self.tau!r} must be replaced by the noise ratio before training")
        return keep_rate(ctx.index, self.tau, self.warmup)


class MetricSums:
    """Accumulates losses on the device and sums once at the end, which avoids a synchronisation per step."""

    def __init__(self) -> None:
        self._samples: list[int] = []  # of each step
        self._means: dict[str, list[Tensor]] = {}  # of each step, by name

    def add(self, samples: int, **means: Tensor) -> None:
        """Record one step.

        Args:
            samples: the batch size.
            **means: scalars, each the mean over the batch of a loss or another measure.
        """
        self._samples.append(samples)
        for name, mean in means.items():
            self._means.setdefault(name, []).append(mean.detach())

    def sums(self) -> dict[str, float]:
        """Return the metrics of an update: `samples`, and for each name the sum over samples."""
        totals = {"samples": float(sum(self._samples))}
        for name, means in self._means.items():
            totals[name] = sum(map(operator.mul, torch.stack(means).tolist(), self._samples))
        return totals
