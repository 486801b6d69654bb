"""Xu et al. 2022, "FedCorr: Multi-Stage Federated Learning for Label Noise Correction", arXiv 2204.04677.

Noisy clients are found by the local intrinsic dimensionality of their predictions, and their labels are corrected in
three stages. docs/baselines.md lists the deviations from the paper, due to cohorts and sums.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.mixture import clean_probability, fit_mixture, local_intrinsic_dimension
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.client_mixture import ClientMixture
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.objective import Mixup
from rofl.methods.weights import fedavg, model_weights, trained_parameters, weight_change
from rofl.models import Network

_LABELS, _DIMENSION, _VISITS, _NOISE, _FIXED = "labels", "dimension", "visits", "noise", "fixed"  # in the client state
_ASIDE = 1e-3  # weight of a client that does not train in the second stage; its change is zero
_NEVER = 2**31  # a round that no run reaches


@dataclass(frozen=True)
class FedCorr(LocalSgd):
    """Finds noisy clients, corrects their labels, trains on clean clients, corrects again, and trains on all."""

    start: Annotated[int, Field(ge=1)] = (
        51  # first round of the second stage; the paper: after 5 passes over all clients
    )
    last_stage: Annotated[int, Field(ge=1)] = 551  # first round of the third stage; the second has 500
    mixup: Annotated[float, Field(ge=0)] = 1.0  # alpha of mixup
    beta: Annotated[float, Field(ge=0)] = 5.0  # weight of the proximal term, times the client's noise level
    neighbours: Annotated[int, Field(ge=2)] = 20  # k of the intrinsic dimensionality
    relabel: Annotated[float, Field(ge=0, le=1)] = 0.5  # share of the samples classified as noisy that is relabelled
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.5  # least probability of a new label
    clean_level: Annotated[float, Field(ge=0, le=1)] = (
        0.1  # noise level up to which a client trains in the second stage
    )
    share: Literal["sums", "clients"] = "sums"  # what clients send; "clients" as published, for simulations
    clients: Annotated[int, Field(ge=0)] = 0  # rows of the table for share = "clients"; 0: as the experiment says

    def with_clients(self, clients: int) -> Self:
        """Return the method for this number of clients, unless they are set or nothing depends on them."""
        return self if self.clients or self.share == "sums" else replace(self, clients=clients)

    def cautious(self) -> Self:
        """Return the method without relabelling and without selection of clients."""
        return replace(self, relabel=0.0, start=_NEVER, last_stage=_NEVER)

    def init(self, net: Network) -> ServerState:
        """Return the initial weights and an empty table of clients."""
        return ServerState(model_weights(net), self._mixture.init(1))

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change, and no statistics."""
        return Update(zeros_like(server_state.model), 0.0, self._mixture.zero(server_state.aux))

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train in the way of the stage that the round belongs to."""
        state = self._state(client_state, data)
        sent = self._mixture.zero(server_state.aux)
        aside = self.start <= ctx.index < self.last_stage and float(state[_NOISE]) > self.clean_level
        probs = predict_client(net, data)[0].softmax(dim=1)  # (n, K) by the global model
        if ctx.index >= self.last_stage and not bool(state[_FIXED]) and float(state[_NOISE]) > 0:
            state[_LABELS] = relabelled(state[_LABELS], probs, self.confidence, torch.ones_like(data.labels) > 0)
            state[_FIXED] = torch.ones_like(state[_FIXED])
        metrics = MetricSums()
        if not aside:
            self._train(net, server_state, state, data, ctx, metrics)
        if ctx.index < self.start:
            sent, changed = self._judge(net, server_state, state, data, probs, ctx.client)
            state = {**state, **changed}
        sums = metrics.sums()
        sums["noise_level"] = float(state[_NOISE]) * sums["samples"]
        weight = _ASIDE if aside else float(len(data))
        return Update(weight_change(net, server_state.model, weight), weight, sent, sums), state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights, and the updated table of clients."""
        return ServerState(fedavg(server_state, total), self._mixture.server_update(server_state.aux, total.aux))

    def _train(
        self,
        net: Network,
        server_state: ServerState,
        state: Tensors,
        data: ClientDataset,
        ctx: RoundContext,
        metrics: MetricSums,
    ) -> None:
        """Train on the current labels with mixup; in the first stage a noisy client stays close to the server."""
        optimizer, mixup = self.optimizer(net, ctx), Mixup(self.mixup, ctx)
        pull = self.beta * float(state[_NOISE]) if ctx.index < self.start else 0.0
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                inputs, partner, share = mixup(data.inputs(index, augment))
                log_probs = net(inputs)[0].log_softmax(dim=1)
                own, other = state[_LABELS][index], state[_LABELS][index][partner]
                each = share * losses.cross_entropy(log_probs, own) + (1 - share) * losses.cross_entropy(
                    log_probs, other
                )
                loss = each.mean() + (pull * _distance(net, server_state) if pull else 0.0)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)

    def _judge(
        self, net: Network, server_state: ServerState, state: Tensors, data: ClientDataset, probs: Tensor, client: int
    ) -> tuple[Tensors, Tensors]:
        """Measure the trained model's predictions; a noisy client estimates its noise and relabels.

        Args:
            net: the trained network.
            server_state: the state that it started from.
            state: of the client.
            data: its samples.
            probs: (n, K) of the global model.
            client: its number.

        Returns:
            The entries to send, and the changes of the client's state.
        """
        own = predict_client(net, data)[0].log_softmax(dim=1)  # (n, K)
        visits = state[_VISITS] + 1
        score = local_intrinsic_dimension(own.exp(), self.neighbours).mean()
        dimension = state[_DIMENSION] + (score - state[_DIMENSION]) / visits  # mean over the client's rounds
        seen = torch.ones_like(dimension) > 0
        sent, kept = self._mixture.measure(dimension, seen, server_state.aux, state, client)
        labels, level = state[_LABELS], torch.zeros_like(dimension)
        if self._mixture.is_noisy(dimension, seen, server_state.aux, client):
            each = losses.cross_entropy(own, labels)  # (n,)
            level[0] = (clean_probability(each, fit_mixture(each)) < 0.5).double().mean()
            worst = each.argsort(descending=True, stable=True)[: int(len(each) * float(level) * self.relabel)]
            among = torch.zeros_like(labels, dtype=torch.bool).index_fill(0, worst, True)
            labels = relabelled(labels, probs, self.confidence, among)
        return sent, {_LABELS: labels, _DIMENSION: dimension, _VISITS: visits, _NOISE: level, **kept}

    def _state(self, client_state: Tensors, data: ClientDataset) -> Tensors:
        """Return the client's labels, dimension, visits, noise level, and whether its last correction is done."""
        zero = torch.zeros(1, device=data.labels.device)
        first = {_LABELS: data.labels, _DIMENSION: zero, _VISITS: zero, _NOISE: zero, _FIXED: zero}
        return {**first, **client_state}

    @property
    def tells_clients_apart(self) -> bool:
        """Whether clients send rows of a table, as published."""
        return self.share == "clients"

    @property
    def _mixture(self) -> ClientMixture:
        return ClientMixture(self.clients if self.share == "clients" else 0, split_clients)


def relabelled(labels: Tensor, probs: Tensor, confidence: float, among: Tensor) -> Tensor:
    """Return labels (n,), some replaced by the most probable class if it is probable enough.

    Args:
        labels: (n,).
        probs: (n, K).
        confidence: the least probability of a new label.
        among: (n,) mask of the samples that may be relabelled.
    """
    sure, guessed = probs.max(dim=1)
    return torch.where(among & (sure > confidence), guessed, labels)


def split_clients(dimensions: np.ndarray) -> np.ndarray:
    """Return which clients (m,) are noisy by their dimensions (m, 1), as published: a mixture of two Gaussians."""
    from sklearn.mixture import GaussianMixture  # slow to import, and only needed for the published form

    fitted = GaussianMixture(2, random_state=0).fit(dimensions)
    return np.asarray(fitted.predict(dimensions) == fitted.means_[:, 0].argmax())


def _distance(net: Network, server_state: ServerState) -> Tensor:
    """Return the distance of the weights to the server's, with a finite gradient at zero."""
    squares = [(weight - server_state.model[name]).square().sum() for name, weight in trained_parameters(net).items()]
    return (torch.stack(squares).sum() + 1e-12).sqrt()
