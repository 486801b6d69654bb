"""rofl beyond the paper: each client's memory of predictions resists wrong labels, once the model has earned it.

docs/decisions/0012-rofl-plus.md has the reasons and the measurements. The memory term is that of early-learning
regularization (Liu et al. 2020, arXiv 2007.00151); its weight follows from a sum over clients.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import centroids as c
from rofl.core import losses
from rofl.core.selection import small_loss
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import MetricSums
from rofl.methods.rofl import UNCONFIDENT, Rofl
from rofl.methods.weights import weight_update
from rofl.models import Network

_FULL_BELIEF = 0.55  # agreement above chance from which the model is believed fully
_FULL_NEED = 0.2  # disagreement from which the whole memory term is needed
_HISTORY_MOMENTUM = 0.9  # of the history of predictions, which the audit uses
_NO_WEIGHT = 1e-12  # of the memory term; 0 would take the agreement out of `aux`
_AGREEMENT = "agreement"  # key in `aux`: up, samples that agree with their label and all samples; down, their quotient


def deserved_belief(agreement: float, classes: int) -> float:
    """Return how far a model deserves to be believed, 0 to 1, by its agreement with the given labels.

    It grows with the sixth power of the agreement above chance, so that it is next to nothing at first. Wrong labels
    lower the agreement as well as a weak model does. That errs on the safe side: a model that is believed too early
    stops learning, and one that is believed too little learns as plain FedAvg does.

    Args:
        agreement: the share of samples whose given label the model predicts.
        classes: K; by chance, 1 / K of the samples agree.

    >>> [round(deserved_belief(share, classes=10), 2) for share in (0.1, 0.4, 0.5, 0.6, 1.0)]
    [0.0, 0.05, 0.28, 1.0, 1.0]
    """
    chance = 1 / classes
    above_chance = max(0.0, (agreement - chance) / (1 - chance))
    return min(1.0, above_chance / _FULL_BELIEF) ** 6


def needed_memory(agreement: float) -> float:
    """Return how much of the memory term is needed, 0 to 1: less where nearly all labels agree with the model.

    Where labels are right, a memory of early and wrong predictions would only be in the way.

    >>> [round(needed_memory(share), 2) for share in (0.5, 0.8, 0.95, 1.0)]
    [1.0, 1.0, 0.25, 0.0]
    """
    return min(1.0, (1 - agreement) / _FULL_NEED)


def extend_history(client_state: Tensors, logits: Tensor) -> Tensor:
    """Return the history (n, K) of a client's samples: a moving average of the global model's probabilities.

    Args:
        client_state: with the history of earlier rounds, if there were any.
        logits: (n, K) of the client's samples, by the global model before the client trains it.
    """
    probabilities = logits.softmax(dim=1)
    past = client_state.get("history")
    return probabilities if past is None else torch.lerp(past, probabilities, 1 - _HISTORY_MOMENTUM)


@dataclass(frozen=True)
class RoflPlus(Rofl):
    """Trains on the given labels, while a memory of each sample's predictions resists those that are wrong.

    The paper's pseudo-labels train a model on what it believes already, which stops a model that is still learning. The
    memory takes their place, and its weight grows with the agreement between the global model and the given labels.
    Towards the end the server takes shorter steps, which averages over rounds. With `memory = 0` this is `Rofl`.

    A client keeps the memory and the history of its samples' predictions. Neither leaves the client.
    """

    tau: Annotated[float, Field(ge=0, lt=1)] | Literal["known", "auto"] = "auto"  # no noise ratio is needed
    t_pl: Annotated[int, Field(ge=1)] = 10  # as in `Rofl`; the memory does not wait for it
    lambda_cen: Annotated[float, Field(ge=0)] = 0.0  # as in `Rofl`
    lambda_e: Annotated[float, Field(ge=0)] = 0.0  # as in `Rofl`
    memory: Annotated[float, Field(ge=0)] = 10.0  # weight of the memory term at full belief; 0: rofl's pseudo-labels
    memory_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.7  # of the memory, per epoch
    server_step: Annotated[float, Field(gt=0, le=1)] = (
        0.3  # the server's step in the last round, at full belief; 1: off
    )
    step_from: Annotated[float, Field(ge=0, le=1)] = 0.3  # share of the rounds after which the step begins to shrink
    horizon: Annotated[int, Field(ge=0)] = 0  # rounds of the run; 0: as the experiment says

    def with_rounds(self, rounds: int) -> Self:
        """Return the method for a run of this many rounds, unless `horizon` is set."""
        return self if self.horizon else replace(self, horizon=rounds)

    def cautious(self) -> Self:
        """Return the method without a weight of the memory; it is still kept, so that updates keep their shapes."""
        return replace(super().cautious(), memory=min(self.memory, _NO_WEIGHT))

    def init(self, net: Network) -> ServerState:
        """Return the state of `Rofl`, and an agreement of zero."""
        state = super().init(net)
        return replace(state, aux={**state.aux, **self._agreement(1)})

    def zero_update(self, server_state: ServerState) -> Update:
        """Return the zero sums of `Rofl`, and those of the agreement."""
        zero = super().zero_update(server_state)
        return replace(zero, aux={**zero.aux, **self._agreement(2)})

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train on the given labels with the memory term; with `memory = 0`, as `Rofl` does."""
        if not self.memory:
            return super().client_update(net, server_state, client_state, data, ctx)
        global_centroids = server_state.aux["centroids"]  # (K, d) f_G
        rate = self._keep_rate(server_state, ctx)  # R(t)
        lambda_memory = self.memory * self._belief(server_state) * needed_memory(float(server_state.aux[_AGREEMENT]))
        lambda_cen = self.lambda_cen * losses.linear_ramp(
            ctx.index, self.cen_start * self.t_pl, self.cen_rise * self.t_pl
        )

        logits, features = predict_client(net, data)  # (n, K), (n, d) by the global model
        agreed = (logits.argmax(dim=1) == data.labels).sum()
        memory = client_state.get("memory", torch.zeros_like(logits)).clone()  # (n, K)
        own_means, _ = c.class_means(features, data.labels, data.classes)
        use_global = c.has_centroid(global_centroids).unsqueeze(1)  # (K, 1)
        local_centroids = torch.where(use_global, global_centroids, own_means)  # (K, d) f_k,0
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        sums, masks = MetricSums(), list[Tensor]()
        net.train()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                labels = data.labels[index]  # (B,)
                batch_logits, features = net(data.inputs(index, augment))  # (B, K), (B, d)
                log_probs = batch_logits.log_softmax(dim=1)
                probs = log_probs.exp()
                remembered = torch.lerp(probs.detach(), memory[index], self.memory_momentum)  # (B, K)
                memory[index] = remembered
                label_loss = losses.cross_entropy(log_probs, labels)  # (B,)
                mask = self._confident(features.detach(), labels, local_centroids)  # (B,) Eq. 6, 7

                l_c = label_loss.mean()
                l_memory = losses.memory(probs, remembered).mean()
                l_cen = losses.centroid(features, local_centroids, labels, mask, self.cen_form)  # Eq. 5
                l_e = losses.entropy(log_probs).mean()
                loss = l_c + lambda_memory * l_memory + lambda_cen * l_cen + self.lambda_e * l_e
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

                small = small_loss(label_loss.detach(), rate)  # Eq. 2
                means, counts = c.class_means(features.detach(), labels, data.classes, small)  # Eq. 3
                local_centroids = self._update_centroids(local_centroids, means, counts)  # Eq. 13
                sums.add(len(index), loss_c=l_c, loss_memory=l_memory, loss_cen=l_cen, loss_e=l_e, loss=loss)
                masks.append(mask)
        confident = torch.cat(masks).view(self.epochs, -1)  # (epochs, n), in the order of the batches
        metrics = sums.sums() | {"confident": float(confident.sum())}
        weighted, similarity = c.weighted_centroids(local_centroids, global_centroids, data.class_counts())  # Eq. 12
        counted = torch.stack([agreed, torch.full_like(agreed, len(data))])
        aux = {"centroids": weighted, "similarity": similarity, _AGREEMENT: counted.to(weighted.dtype)}
        if self.tau == "auto":
            unconfident = torch.stack([~confident[-1], torch.ones_like(confident[-1])]).sum(dim=1)
            aux[UNCONFIDENT] = unconfident.to(weighted.dtype)
        update = Update(weight_update(net, server_state, len(data)), float(len(data)), aux, metrics)
        return update, {"memory": memory, "history": extend_history(client_state, logits)}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the state of `Rofl`, with a shorter step of the weights towards the end, and the new agreement."""
        state = super().server_update(server_state, total, ctx)
        if not self.memory:
            return state
        step = self._server_step(server_state, ctx)
        model = {name: torch.lerp(old, state.model[name], step) for name, old in server_state.model.items()}
        counted = total.aux[_AGREEMENT]
        return ServerState(model, {**state.aux, _AGREEMENT: counted[:1] / counted[1:].clamp(min=1)})

    def _agreement(self, size: int) -> Tensors:
        """Return the zero of what `memory` adds to `aux`: two counts up (size 2), their quotient down (size 1)."""
        return {_AGREEMENT: torch.zeros(size)} if self.memory else {}

    def _belief(self, server_state: ServerState) -> float:
        return deserved_belief(float(server_state.aux[_AGREEMENT]), len(server_state.aux["centroids"]))

    def _server_step(self, server_state: ServerState, ctx: RoundContext) -> float:
        """Return the server's step: 1 at first, then falling linearly to `server_step`, less so at little belief."""
        if not self.horizon:
            return 1.0
        start = self.step_from * self.horizon
        ramp = losses.linear_ramp(ctx.index, start, self.horizon - start)
        return 1 - (1 - self.server_step) * self._belief(server_state) * ramp
