"""Han et al. 2019, "Deep Self-Learning From Noisy Labels", with FedAvg; sizes as in the federated paper."""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses, prototypes
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import LocalSgd, MetricSums
from rofl.methods.weights import fedavg, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class SelfLearning(LocalSgd):
    """Corrects labels by several prototypes per class; the loss mixes given and corrected labels."""

    lr: Annotated[float, Field(gt=0)] = 0.002  # supplement, "Deep self-learning"
    lr_decay_every: Annotated[int, Field(ge=0)] = 5  # "decreased by 10 every 5 epochs"
    start: Annotated[int, Field(ge=1)] = 5  # first round that corrects labels
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5  # share of the corrected labels in the loss
    sample: Annotated[int, Field(ge=1)] = 128  # images per class among which prototypes are looked for
    prototypes: Annotated[int, Field(ge=1)] = 3  # per class

    def cautious(self) -> "SelfLearning":
        """Return the method with the given labels only."""
        return replace(self, alpha=0.0)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Correct the labels with the received model, then train on a mixture of given and corrected labels."""
        alpha = self.alpha if ctx.index >= self.start else 0.0
        corrected = self._correct(net, data, ctx) if alpha else data.labels  # (n,)
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        sums = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))
                log_probs = logits.log_softmax(dim=1)
                label_loss = losses.cross_entropy(log_probs, data.labels[index])
                corrected_loss = losses.cross_entropy(log_probs, corrected[index])
                loss = ((1 - alpha) * label_loss + alpha * corrected_loss).mean()  # Eq. 1
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sums.add(len(index), loss=loss)
        metrics = sums.sums()
        metrics["corrected"] = float((corrected != data.labels).sum()) * metrics["samples"] / len(data)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), metrics=metrics), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the mean of the clients' weights (Eq. 10 of the federated paper)."""
        return ServerState(fedavg(server_state, total))

    def _correct(self, net: Network, data: ClientDataset, ctx: RoundContext) -> Tensor:
        """Return the class whose prototypes are most similar on average, (n,) (Eq. 5)."""
        _, features = predict_client(net, data)
        chosen = features.new_zeros(data.classes, self.prototypes, features.shape[1])  # (K, p, d)
        present = torch.zeros_like(chosen[..., 0], dtype=torch.bool)  # (K, p)
        shuffled = torch.randperm(len(data), generator=ctx.rng("prototypes")).to(features.device)
        for label in data.labels.unique().tolist():
            members = shuffled[data.labels[shuffled] == label][: self.sample]
            selected = members[prototypes.select_prototypes(features[members], self.prototypes)]
            chosen[label, : len(selected)] = features[selected]
            present[label, : len(selected)] = True
        return prototypes.mean_similarities(features, chosen, present).argmax(dim=1)
