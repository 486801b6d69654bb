"""Ji et al. 2024, "FedFixer: Mitigating Heterogeneous Label Noise in Federated Learning", arXiv 2403.16561."""

import copy
import math
from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import fedavg, trained_parameters, weight_change
from rofl.models import Network

_LOG_SMALL = math.log(1e-8)
_LEAST_WEIGHT = 1e-3  # of a client that trusts none of its labels
_NEVER = 2**31  # a round that no run reaches


@dataclass(frozen=True)
class FedFixer(LocalSgd):
    """A shared and a personal model, each trained on the samples that the other classifies as clean.

    A sample is clean if the loss of its label is at most the mean loss over all labels (Cheng et al. 2021, CORES).
    A client's weight is the number of its clean samples. The personal model starts from the shared one in every round.
    """

    start: Annotated[int, Field(ge=1)] = 3  # first round that selects samples
    beta: Annotated[float, Field(ge=0)] = 2.0  # weight of the confidence term, once it has risen
    beta_ramp: Annotated[int, Field(ge=0)] = 5  # rounds from `start` on over which beta rises
    inner_steps: Annotated[int, Field(ge=1)] = 5  # of the personal model on each batch
    prox: Annotated[float, Field(ge=0)] = 0.1  # pull of the personal model towards the shared one
    pull: Annotated[float, Field(ge=0, le=1)] = 0.15  # step of the shared model towards the personal one

    def cautious(self) -> Self:
        """Return the method without selection and without the confidence term."""
        return replace(self, start=_NEVER)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train both models batch by batch; the change of the shared one is sent."""
        select = ctx.index >= self.start
        beta = self.beta * losses.linear_ramp(ctx.index, self.start - 1, self.beta_ramp) if select else 0.0
        personal = copy.deepcopy(net)
        optimizer, own_optimizer = self.optimizer(net, ctx), self.optimizer(personal, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        personal.train()
        metrics, picked = MetricSums(), list[Tensor]()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                inputs, labels = data.inputs(index, augment), data.labels[index]
                shared_picks = pick_clean(net(inputs)[0].detach(), labels, select)  # (B,)
                for _ in range(self.inner_steps):
                    own_logits, _ = personal(inputs)
                    own_picks = pick_clean(own_logits.detach(), labels, select)
                    own_loss = confident_loss(own_logits, labels, shared_picks, beta)
                    own_loss = own_loss + self.prox / 2 * _distance(personal, net)
                    own_optimizer.zero_grad()
                    own_loss.backward()
                    own_optimizer.step()
                _move(net, personal, self.pull)
                loss = confident_loss(net(inputs)[0], labels, own_picks, beta)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss, loss_personal=own_loss)
                picked.append(own_picks.sum())
        sums = metrics.sums()
        sums["clean"] = float(torch.stack(picked).sum())
        weight = max(len(data) * sums["clean"] / sums["samples"], _LEAST_WEIGHT)
        return Update(weight_change(net, server_state.model, weight), weight, metrics=sums), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights by their numbers of clean samples."""
        return ServerState(fedavg(server_state, total))


def pick_clean(logits: Tensor, labels: Tensor, select: bool) -> Tensor:
    """Return which samples (B,) are clean: the loss of the label is at most the mean loss over all labels.

    Args:
        logits: (B, K).
        labels: (B,).
        select: False to pick all.

    >>> pick_clean(torch.tensor([[2.0, 0.0], [2.0, 0.0]]), torch.tensor([0, 1]), select=True)
    tensor([ True, False])
    """
    log_probs = logits.log_softmax(dim=1)
    clean = losses.cross_entropy(log_probs, labels) <= mean_loss(log_probs)
    return clean | (not select)


def confident_loss(logits: Tensor, labels: Tensor, picks: Tensor, beta: float) -> Tensor:
    """Return the mean over picked samples of the cross-entropy - beta * the mean loss over all labels; 0 for none.

    Args:
        logits: (B, K).
        labels: (B,).
        picks: (B,) mask of the selected samples.
        beta: weight of the second term, which rewards confidence.
    """
    log_probs = logits.log_softmax(dim=1)
    each = losses.cross_entropy(log_probs, labels) - beta * mean_loss(log_probs)
    return (each * picks).sum() / picks.sum().clamp(min=1)


def mean_loss(log_probs: Tensor) -> Tensor:
    """Return the mean over all labels of -log(p + 1e-8), (B,), from log-probabilities (B, K).

    The constant is the authors'. Without it the reward for confidence would be unbounded, and logits would diverge.

    >>> mean_loss(torch.tensor([[0.5, 0.5]]).log())
    tensor([0.6931])
    """
    return -torch.logaddexp(log_probs, torch.full_like(log_probs, _LOG_SMALL)).mean(dim=1)


def _distance(personal: Network, shared: Network) -> Tensor:
    """Return the squared distance of two networks' weights, with a gradient for the first only."""
    pairs = zip(*(trained_parameters(net).values() for net in (personal, shared)), strict=True)
    return torch.stack([(own - other.detach()).square().sum() for own, other in pairs]).sum()


@torch.no_grad()
def _move(shared: Network, personal: Network, share: float) -> None:
    """Move the weights of the first network towards those of the second."""
    for weight, own in zip(*(trained_parameters(net).values() for net in (shared, personal)), strict=True):
        weight.lerp_(own, share)
