"""FedAvg (McMahan et al. 2017): the paper's "Cross Entropy Loss" with cross-entropy; robust losses are settings."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

from pydantic import Field
from torch import Tensor

from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.objective import Objective
from rofl.methods.weights import fedavg, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class FedAvg(LocalSgd):
    """FedAvg on the given labels, without any treatment of label noise; the baseline of every comparison."""

    loss: Literal["ce", "gce", "sce", "elr"] = "ce"
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0  # share of a label that is spread over all classes
    mixup: Annotated[float, Field(ge=0)] = 0.0  # alpha of mixup; 0: off
    gce_q: Annotated[float, Field(gt=0, le=1)] = 0.7  # Zhang and Sabuncu 2018
    sce_alpha: Annotated[float, Field(ge=0)] = 0.1  # Wang et al. 2019, CIFAR-10; 6 for CIFAR-100
    sce_beta: Annotated[float, Field(ge=0)] = 1.0  # Wang et al. 2019, CIFAR-10; 0.1 for CIFAR-100
    elr_lambda: Annotated[float, Field(ge=0)] = 3.0  # Liu et al. 2020, CIFAR-10; 7 for CIFAR-100
    elr_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.7  # Liu et al. 2020, CIFAR-10; 0.9 for CIFAR-100

    def __post_init__(self) -> None:
        if self.label_smoothing and self.loss in ("gce", "sce"):
            raise ValueError(f"label_smoothing is for loss = ce and elr, not for {self.loss}")
        if self.mixup and self.loss == "elr":
            raise ValueError("mixup is not for loss = elr, which remembers single samples")

    def cautious(self) -> Self:
        """Return the method without the regularizer of `elr`, which uses earlier predictions."""
        return replace(self, elr_lambda=0.0) if self.loss == "elr" else self

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train for `epochs` epochs of SGD on the given labels."""
        optimizer, objective = self.optimizer(net, ctx), Objective(self, net, data, client_state, ctx)
        order = ctx.rng("batches")
        net.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                loss = objective(index) + self.penalty(net, server_state)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)
        update = Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics.sums())
        return update, objective.next_state()

    def penalty(self, net: Network, server_state: ServerState) -> Tensor | float:
        """Return the term that is added to the loss of each step; zero here."""
        return 0.0

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights, weighted by their numbers of samples (Eq. 10)."""
        return ServerState(fedavg(server_state, total))
