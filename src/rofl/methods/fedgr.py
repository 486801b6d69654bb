"""Tian et al. 2026, "Learning Locally, Revising Globally: Global Reviser for Federated Learning with Noisy Labels".

FedGR, arXiv 2412.00452. A mixture over all clients' samples separates clean samples by their mean loss under the global
models so far. In the paper the server receives every loss; here it receives a histogram, which is a sum.
"""

import copy
from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.mixture import clean_probability, fit_mixture
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.views import strong_view
from rofl.methods.weights import fedavg, load_weights, model_weights, weight_update
from rofl.models import Network

_HISTOGRAM, _MIXTURE = "histogram", "mixture"  # up: (bins,) counts; down: (2, 3)
_MEAN, _VISITS, _PSEUDO, _TEACHER = "loss_mean", "visits", "pseudo_labels", "teacher/"  # keys in the client state
_TOP_LOSS = 10.0  # losses above it fall into the last bin
_FLOOR = 0.0224  # least standard deviation of the mixture; the published least variance is 5e-4
_NONE = -1  # no pseudo-label
_SHARPEN = 2.0  # factor of the logits in both distillation terms, 1 / 0.5
_TEACHER_MOMENTUM = 0.99  # of the teacher, per step
_NEVER = 2**31  # a round that no run reaches


@dataclass(frozen=True)
class FedGR(LocalSgd):
    """One filter over all clients' losses, pseudo-labels by the global model, and a teacher that is revised by it."""

    start: Annotated[int, Field(ge=1)] = 101  # first round that refines labels; the paper: after 10 visits of a client
    bins: Annotated[int, Field(ge=8)] = 64  # of the histogram of losses
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.9  # least probability of a pseudo-label
    noisy_share: Annotated[float, Field(ge=0, le=1)] = 0.8  # clients with more noisy samples use pseudo-labels only
    pseudo_share: Annotated[float, Field(ge=0, le=1)] = 0.5  # of samples, below which such a client's teacher is reset
    revision: Annotated[float, Field(ge=0, le=1)] = 0.1  # share of the global model in the teacher at a round's start
    lambda_teacher: Annotated[float, Field(ge=0)] = 1.0  # weight of KL(teacher || student), from `start` on
    lambda_features: Annotated[float, Field(ge=0)] = 0.1  # weight of the consistency of features

    def cautious(self) -> Self:
        """Return the method that trains on the given labels only."""
        return replace(self, start=_NEVER, lambda_features=0.0)

    def init(self, net: Network) -> ServerState:
        """Return the initial weights, and no mixture."""
        return ServerState(model_weights(net), {_MIXTURE: torch.zeros(2, 3)})

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change, and an empty histogram."""
        return Update(zeros_like(server_state.model), 0.0, {_HISTOGRAM: torch.zeros(self.bins)})

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Measure losses with the received model, refine labels, and train on strong views."""
        logits, features = predict_client(net, data)  # (n, K), (n, d) by the global model
        state = self._measure(logits, client_state, data)
        refine = ctx.index >= self.start and bool(server_state.aux[_MIXTURE][:, 2].sum() > 0.5)
        clean, noisy_share = torch.ones_like(state[_MEAN]), 0.0  # (n,) q
        if refine:
            clean = clean_probability(state[_MEAN], server_state.aux[_MIXTURE])
            noisy_share = float((clean < 0.5).double().mean())  # r_k
            state[_PSEUDO] = self._pseudo_labels(logits, clean, state[_PSEUDO], data)
        teacher = self._teacher(net, client_state, refine, noisy_share, state[_PSEUDO])
        taught = predict_client(teacher, data)[0] if refine and self.lambda_teacher else logits  # (n, K)
        optimizer, student = self.optimizer(net, ctx), net
        order, augment, views = ctx.rng("batches"), ctx.rng("augment"), ctx.rng("views")
        student.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                own_logits, own_features = student(strong_view(data.inputs(index, augment), views))
                log_probs = own_logits.log_softmax(dim=1)
                l_c = refined_loss(
                    log_probs, data.labels[index], state[_PSEUDO][index], clean[index], noisy_share < self.noisy_share
                )
                loss = l_c + self.lambda_features * sharp_divergence(own_features, features[index])
                if refine:
                    loss = loss + self.lambda_teacher * sharp_divergence(own_logits, taught[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                _follow(teacher, student)
                metrics.add(len(index), loss_c=l_c, loss=loss)
        counts = torch.histc(state[_MEAN].cpu(), self.bins, 0.0, _TOP_LOSS)
        aux = {_HISTOGRAM: counts.to(logits.device)}
        kept = {f"{_TEACHER}{name}": value.clone() for name, value in teacher.shared_entries().items()}
        update = Update(weight_update(net, server_state, len(data)), float(len(data)), aux, metrics.sums())
        return update, {**state, **kept}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights, and the mixture of the cohort's losses."""
        width = _TOP_LOSS / self.bins
        centres = width * (torch.arange(self.bins) + 0.5)
        mixture = fit_mixture(centres, total.aux[_HISTOGRAM].clamp(min=0), floor=max(_FLOOR, width / 2))
        return ServerState(fedavg(server_state, total), {_MIXTURE: mixture.float()})

    def _measure(self, logits: Tensor, client_state: Tensors, data: ClientDataset) -> Tensors:
        """Return each sample's mean loss over the client's rounds (n,), the number of rounds, and pseudo-labels."""
        each = losses.cross_entropy(logits.log_softmax(dim=1), data.labels).clamp(max=_TOP_LOSS)
        visits = client_state.get(_VISITS, torch.zeros(1, device=each.device)) + 1
        mean = client_state.get(_MEAN, torch.zeros_like(each))
        pseudo = client_state.get(_PSEUDO, torch.full_like(data.labels, _NONE))
        return {_MEAN: mean + (each - mean) / visits, _VISITS: visits, _PSEUDO: pseudo}

    def _pseudo_labels(self, logits: Tensor, clean: Tensor, before: Tensor, data: ClientDataset) -> Tensor:
        """Return the given label if it is clean, else the global model's if it is sure, else the last one (n,).

        Args:
            logits: (n, K) of the global model.
            clean: (n,) probability that each label is right.
            before: (n,) pseudo-labels of the client's last round.
            data: the client's samples.
        """
        sure, guessed = logits.softmax(dim=1).max(dim=1)  # (n,) each
        revised = torch.where(sure > self.confidence, guessed, before)
        return torch.where(clean >= 0.5, data.labels, revised)

    def _teacher(
        self, net: Network, client_state: Tensors, refine: bool, noisy_share: float, pseudo: Tensor
    ) -> Network:
        """Return the client's teacher, revised by the global model, or replaced by it if too few labels are usable.

        Args:
            net: with the global model's weights.
            client_state: with the teacher of the client's last round.
            refine: whether labels are refined already.
            noisy_share: r_k.
            pseudo: (n,) pseudo-labels.
        """
        teacher = copy.deepcopy(net)
        few = float((pseudo != _NONE).double().mean()) < self.pseudo_share
        last = {name.removeprefix(_TEACHER): value for name, value in client_state.items() if name.startswith(_TEACHER)}
        if refine and last and not (noisy_share > self.noisy_share and few):
            current = net.shared_entries()
            load_weights(
                teacher, {name: torch.lerp(value, current[name], self.revision) for name, value in last.items()}
            )
        return teacher


def refined_loss(log_probs: Tensor, given: Tensor, pseudo: Tensor, clean: Tensor, trusted: bool) -> Tensor:
    """Return the mean of q * CE(given) + (1 - q) * CE(pseudo); of CE(pseudo) alone if the client is not trusted.

    Args:
        log_probs: (B, K).
        given: (B,) labels.
        pseudo: (B,) labels; -1 for none, which counts as no loss.
        clean: (B,) q, the probability that the given label is right.
        trusted: whether given labels count at all.
    """
    known = pseudo != _NONE
    revised = losses.cross_entropy(log_probs, pseudo.clamp(min=0)) * known
    if not trusted:
        return revised.mean()
    return (clean * losses.cross_entropy(log_probs, given) + (1 - clean) * revised).mean()


def sharp_divergence(own: Tensor, target: Tensor) -> Tensor:
    """Return the mean KL(softmax(2 target) || softmax(2 own)) of two batches (B, m)."""
    return losses.divergence((_SHARPEN * target).softmax(dim=1), (_SHARPEN * own).log_softmax(dim=1)).mean()


@torch.no_grad()
def _follow(teacher: Network, student: Network) -> None:
    """Move the teacher a little towards the student."""
    current = student.shared_entries()
    for name, value in teacher.shared_entries().items():
        value.lerp_(current[name], 1 - _TEACHER_MOMENTUM)
