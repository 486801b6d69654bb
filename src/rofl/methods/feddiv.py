"""Li et al. 2024, "FedDiv: Collaborative Noise Filtering for Federated Learning with Noisy Labels", AAAI 2024.

Clients fit a two-component Gaussian mixture to their losses, and all use the mean of the clients' mixtures as filter.
The server needs no cache of each client's last mixture: a client sends n_k times the change of its mixture, and the
running total equals that of the cache. So the published aggregation is exactly a sum.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Self

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses
from rofl.core.mixture import clean_probability, fit_mixture
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.data.client_dataset import batches
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.objective import Mixup
from rofl.methods.weights import fedavg, model_weights, weight_update
from rofl.models import Network

_FILTER = "filter"  # key in `aux`: (7,) n times the mixture's six numbers, and n; the server's is a running total
_SENT, _LABELS, _PRIOR = "sent_filter", "debiased_labels", "prior"  # keys in the client state
_LOCAL_STEPS = 3  # of expectation maximization at a client, from the global mixture
_SURE = 0.85  # probability above which a sample counts for the client's class prior
_NEVER = 2**31  # a round that no run reaches


@dataclass(frozen=True)
class FedDiv(LocalSgd):
    """One filter over all clients' losses; noisy samples are relabelled if local and global model agree."""

    start: Annotated[int, Field(ge=1)] = (
        51  # first round that filters; the paper warms up for 5 passes over all clients
    )
    mixup: Annotated[float, Field(ge=0)] = 1.0  # alpha of mixup
    clean_share: Annotated[float, Field(ge=0, le=1)] = 0.1  # a client with at most this share of noisy samples is clean
    confidence: Annotated[float, Field(ge=0, le=1)] = 0.75  # zeta: least probability of a new label
    debias: Annotated[float, Field(ge=0)] = 0.5  # xi: weight of the log of the class prior
    prior_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.2  # of the client's class prior
    lambda_prior: Annotated[float, Field(ge=0)] = 1.0  # weight of KL(uniform || mean prediction)

    def cautious(self) -> Self:
        """Return the method without the filter."""
        return replace(self, start=_NEVER)

    def init(self, net: Network) -> ServerState:
        """Return the initial weights, and no filter."""
        return ServerState(model_weights(net), {_FILTER: torch.zeros(7)})

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change of weights and filter."""
        return Update(zeros_like(server_state.model), 0.0, zeros_like(server_state.aux))

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Select and relabel samples by the received model and filter, train on them, and fit the local mixture."""
        mixture = global_mixture(server_state.aux[_FILTER])
        logits, _ = predict_client(net, data)  # (n, K) by the global model
        labels, chosen = data.labels, torch.arange(len(data), device=logits.device)
        if ctx.index >= self.start and mixture is not None:
            labels, chosen = self._select(logits, mixture, client_state, data)
        metrics = MetricSums()
        if len(chosen):
            self._train(net, data, labels, chosen, ctx, metrics)
        local_logits, _ = predict_client(net, data)  # (n, K) by the trained model
        local = fit_mixture(scaled_losses(local_logits, data.labels), start=mixture, steps=_LOCAL_STEPS)
        sent = torch.cat([len(data) * local.flatten(), local.new_full((1,), len(data))]).float()
        change = sent - client_state.get(_SENT, torch.zeros_like(sent))
        sums = metrics.sums()
        sums["selected"] = sums["samples"] * len(chosen) / len(data)
        update = Update(weight_update(net, server_state, len(data)), float(len(data)), {_FILTER: change}, sums)
        return update, {_SENT: sent, **self._debias(local_logits, client_state)}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights, and the running total of their mixtures."""
        return ServerState(fedavg(server_state, total), {_FILTER: server_state.aux[_FILTER] + total.aux[_FILTER]})

    def _select(
        self, logits: Tensor, mixture: Tensor, client_state: Tensors, data: ClientDataset
    ) -> tuple[Tensor, Tensor]:
        """Return labels (n,) and the samples to train on.

        Args:
            logits: (n, K) of the global model.
            mixture: (2, 3) the filter.
            client_state: with the local model's debiased labels of the client's last round.
            data: the client's samples.
        """
        clean = clean_probability(scaled_losses(logits, data.labels), mixture) >= 0.5  # (n,)
        if float((~clean).double().mean()) <= self.clean_share:
            return data.labels, torch.arange(len(data), device=logits.device)
        confidence, guessed = logits.softmax(dim=1).max(dim=1)  # (n,) each
        agrees = guessed == client_state.get(_LABELS, guessed)
        labels = torch.where(clean, data.labels, guessed)
        chosen = agrees & (clean | (confidence >= self.confidence))
        return labels, chosen.nonzero().flatten()

    def _train(
        self, net: Network, data: ClientDataset, labels: Tensor, chosen: Tensor, ctx: RoundContext, metrics: MetricSums
    ) -> None:
        """Train on the chosen samples with mixup."""
        optimizer, mixup = self.optimizer(net, ctx), Mixup(self.mixup, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        for _ in range(self.epochs):
            for place in batches(len(chosen), self.batch, order, chosen.device):
                index = chosen[place]
                inputs, partner, share = mixup(data.inputs(index, augment))
                log_probs = net(inputs)[0].log_softmax(dim=1)
                own, other = labels[index], labels[index][partner]
                l_c = share * losses.cross_entropy(log_probs, own) + (1 - share) * losses.cross_entropy(
                    log_probs, other
                )
                loss = l_c.mean() + self.lambda_prior * losses.prior(log_probs)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)

    def _debias(self, logits: Tensor, client_state: Tensors) -> Tensors:
        """Return the local model's labels (n,), debiased for frequent classes, and its class prior (K,)."""
        prior = client_state.get(_PRIOR, torch.full_like(logits[0], 1 / logits.shape[1]))
        debiased = (logits - self.debias * prior.clamp(min=1e-6).log()).softmax(dim=1)
        sure = debiased.max(dim=1).values > _SURE  # (n,)
        if bool(sure.any()):
            prior = torch.lerp(logits.softmax(dim=1)[sure].mean(dim=0), prior, self.prior_momentum)
        return {_LABELS: debiased.argmax(dim=1), _PRIOR: prior}


def scaled_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each sample, scaled to 0..1 over the client's samples, (n,)."""
    each = losses.cross_entropy(logits.log_softmax(dim=1), labels)
    low, high = each.aminmax()
    return (each - low) / (high - low).clamp(min=1e-6)


def global_mixture(total: Tensor) -> Tensor | None:
    """Return the mean mixture (2, 3) of all clients from the running total (7,); None if there is none."""
    if float(total[6]) < 1:
        return None
    mean = (total[:6] / total[6]).view(2, 3)
    return torch.stack([mean[:, 0], mean[:, 1].clamp(min=1e-3), mean[:, 2].clamp(1e-3, 1)], dim=1)
