"""Wu et al. 2023, "FedNoRo: Towards Noise-Robust Federated Learning by Addressing Class Imbalance and Label Noise".

Noisy clients are detected by their vector of per-class mean losses. They also learn from the global model's
predictions, and have less weight. docs/baselines.md lists the deviations of the default, which needs only sums.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.client_mixture import ClientMixture
from rofl.methods.distance_weights import DistanceWeights
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import model_weights
from rofl.models import Network

_NEVER = 2**31  # a round that no run reaches
_VOTES = 9  # number of fits of the published detection; the majority decides


@dataclass(frozen=True)
class FedNoRo(LocalSgd):
    """Finds noisy clients by their losses; they also learn from the global model, and have less weight."""

    start: Annotated[int, Field(ge=1)] = 11  # first round in which noisy clients are treated as such
    ramp: Annotated[int, Field(ge=1)] = 39  # rounds from `start` on over which the weight of the global model rises
    distill: Annotated[float, Field(ge=0, le=1)] = 0.8  # final weight of the global model's predictions
    temperature: Annotated[float, Field(gt=0)] = 0.8  # of these predictions
    share: Literal["sums", "clients"] = "sums"  # what clients send; "clients" as published, for simulations
    clients: Annotated[int, Field(ge=0)] = 0  # rows of the table for share = "clients"; 0: as the experiment says

    def with_clients(self, clients: int) -> Self:
        """Return the method for this number of clients, unless they are set or nothing depends on them."""
        return self if self.clients or self.share == "sums" else replace(self, clients=clients)

    def cautious(self) -> Self:
        """Return the method that treats all clients as clean."""
        return replace(self, start=_NEVER)

    def init(self, net: Network) -> ServerState:
        """Return the initial weights and an empty table of clients."""
        model = model_weights(net)
        return ServerState(model, {**self._mixture.init(net.classes), **self._weights.init(model)})

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change, and no statistics."""
        aux = {**self._mixture.zero(server_state.aux), **self._weights.zero(server_state.model)}
        return Update(zeros_like(server_state.model), 0.0, aux)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Measure the per-class losses of the received model, then train as a clean or as a noisy client."""
        logits, _ = predict_client(net, data)  # (n, K) by the global model
        vector = losses_by_class(logits, data.labels)  # (K,)
        seen = data.class_counts() > 0  # (K,)
        sent, kept = self._mixture.measure(vector, seen, server_state.aux, client_state, ctx.client)
        noisy = ctx.index >= self.start and self._mixture.is_noisy(vector, seen, server_state.aux, ctx.client)
        metrics = MetricSums()
        if noisy:
            kept = kept | self._train_noisy(net, client_state, data, ctx, metrics)
        else:
            self._train_clean(net, data, ctx, metrics)
            kept = kept | self._kept_labels(client_state, data)
        sums = metrics.sums()
        sums["noisy_clients"] = sums["samples"] * noisy
        update = self._weights.update(net, server_state, len(data), noisy, ctx.client)
        return replace(update, aux=update.aux | sent, metrics=sums), kept

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the weighted mean of the clients' weights, and the updated table of clients."""
        mixture = self._mixture.server_update(server_state.aux, total.aux)
        model, distances = self._weights.aggregate(server_state, total)
        return ServerState(model, {**mixture, **distances})

    def _train_clean(self, net: Network, data: ClientDataset, ctx: RoundContext, metrics: MetricSums) -> None:
        """Train on the given labels, with logits adjusted by the client's class frequencies."""
        optimizer, prior = self.optimizer(net, ctx), log_prior(data)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))
                loss = F.cross_entropy(logits + prior, data.labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)

    def _train_noisy(
        self, net: Network, client_state: Tensors, data: ClientDataset, ctx: RoundContext, metrics: MetricSums
    ) -> Tensors:
        """Train on a mixture of the given labels and the global model's predictions; return the client state."""
        optimizer, prior, teacher = self.optimizer(net, ctx), log_prior(data), net.predictor()
        weight = self.distill * sigmoid_ramp(ctx.index, self.start, self.ramp)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                inputs = data.inputs(index, augment)
                with torch.no_grad():
                    targets = (teacher(inputs)[0] / self.temperature).softmax(dim=1)  # (B, K)
                log_probs = (net(inputs)[0] + prior).log_softmax(dim=1)
                present = log_probs.masked_fill(prior.isinf(), 0.0)  # absent classes are left out, as published
                l_kd = losses.divergence(targets, present).mean()
                l_c = losses.cross_entropy(log_probs, data.labels[index]).mean()
                loss = weight * l_kd + (1 - weight) * l_c
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)
        return {}

    def _kept_labels(self, client_state: Tensors, data: ClientDataset) -> Tensors:
        """Return the labels in the client state of a clean client; empty here."""
        return {}

    @property
    def tells_clients_apart(self) -> bool:
        """Whether clients send rows of a table, as published."""
        return self.share == "clients"

    @property
    def _mixture(self) -> ClientMixture:
        return ClientMixture(self.clients if self.share == "clients" else 0, vote_noisy)

    @property
    def _weights(self) -> DistanceWeights:
        return DistanceWeights(self.clients if self.share == "clients" else 0)


def losses_by_class(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of the samples of each class (K,); 0 for a class without any.

    >>> losses_by_class(torch.zeros(2, 2), torch.tensor([0, 0]))
    tensor([0.6931, 0.0000])
    """
    each = losses.cross_entropy(logits.log_softmax(dim=1), labels)
    counts = torch.bincount(labels, minlength=logits.shape[1])
    sums = torch.zeros_like(logits[0]).index_add(0, labels, each)
    return sums / counts.clamp(min=1)


def log_prior(data: ClientDataset) -> Tensor:
    """Return the logarithm of each class's share of a client's labels (K,); minus infinity for an absent one."""
    return (data.class_counts() / len(data)).log()


def sigmoid_ramp(index: int, start: int, length: int) -> float:
    """Return exp(-5 (1 - x)^2), where x goes from 0 to 1 over some rounds (Laine and Aila 2017).

    Args:
        index: the round.
        start: the round in which x is 0.
        length: rounds until x is 1.

    >>> [round(sigmoid_ramp(t, start=10, length=4), 3) for t in (10, 12, 14, 20)]
    [0.007, 0.287, 1.0, 1.0]
    """
    return float(np.exp(-5 * (1 - min(max((index - start) / length, 0.0), 1.0)) ** 2))


def vote_noisy(vectors: np.ndarray) -> np.ndarray:
    """Return which clients (m,) are noisy from their vectors (m, K), as published: the majority of nine fits."""
    from sklearn.mixture import GaussianMixture  # slow to import, and only needed for the published form

    low, high = vectors.min(axis=0), vectors.max(axis=0)
    scaled = (vectors - low) / np.where(high > low, high - low, 1.0)
    outcomes = []
    for seed in range(_VOTES):
        fitted = GaussianMixture(2, random_state=seed, reg_covar=1e-3).fit(scaled)
        outcomes.append(tuple(fitted.predict(scaled) == fitted.means_.sum(axis=1).argmax()))
    return np.array(max(outcomes, key=outcomes.count))
