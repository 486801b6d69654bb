"""Han et al. 2019, "Deep Self-Learning From Noisy Labels", with FedAvg; sizes as in the federated paper."""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import losses, prototypes
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import Shard
from rofl.methods.base import Global, Round, Update
from rofl.methods.training import LocalSgd, Steps, fedavg, predict_shard, weight_update, weights
from rofl.models import Network


@dataclass(frozen=True)
class SelfLearning(LocalSgd):
    """Labels are corrected by several prototypes per class; the loss mixes given and corrected labels."""

    lr: Annotated[float, Field(gt=0)] = 0.002  # supplement, "Deep self-learning"
    lr_every: Annotated[int, Field(ge=0)] = 5  # "decreased by 10 every 5 epochs"
    start: Annotated[int, Field(ge=1)] = 5  # first round that corrects labels
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5  # share of the corrected labels in the loss
    sample: Annotated[int, Field(ge=1)] = 128  # images per class among which prototypes are looked for
    prototypes: Annotated[int, Field(ge=1)] = 3  # per class

    def begin(self, net: Network) -> Global:
        """Initial weights."""
        return Global(weights(net))

    def blank(self, glob: Global) -> Update:
        """No change."""
        return Update(zeros_like(glob.model), 0.0)

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        """The label correction phase with the received model, then the training phase."""
        alpha = self.alpha if rnd.index >= self.start else 0.0
        corrected = self._correct(net, data, rnd) if alpha else data.labels  # (n,)
        optimizer = self.optimizer(net, rnd)
        order, augment = rnd.rng("batches"), rnd.rng("augment")
        net.train()
        steps = Steps()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))
                log_probs = logits.log_softmax(dim=1)
                given = losses.cross_entropy(log_probs, data.labels[index])
                better = losses.cross_entropy(log_probs, corrected[index])
                loss = ((1 - alpha) * given + alpha * better).mean()  # Eq. 1
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps.add(len(index), loss=loss)
        metrics = steps.sums()
        metrics["corrected"] = float((corrected != data.labels).sum()) * metrics["samples"] / len(data)
        return Update(weight_update(net, glob, len(data)), float(len(data)), metrics=metrics), {}

    def server(self, glob: Global, total: Update, rnd: Round) -> Global:
        """Eq. 10 of the federated paper."""
        return Global(fedavg(glob, total))

    def _correct(self, net: Network, data: Shard, rnd: Round) -> Tensor:
        """Eq. 5: the class whose prototypes are most similar on average, (n,)."""
        _, features = predict_shard(net, data)
        found = features.new_zeros(data.classes, self.prototypes, features.shape[1])  # (K, p, d)
        present = torch.zeros_like(found[..., 0], dtype=torch.bool)  # (K, p)
        shuffled = torch.randperm(len(data), generator=rnd.rng("prototypes")).to(features.device)
        for label in data.labels.unique().tolist():
            members = shuffled[data.labels[shuffled] == label][: self.sample]
            chosen = members[prototypes.choose(features[members], self.prototypes)]
            found[label, : len(chosen)] = features[chosen]
            present[label, : len(chosen)] = True
        return prototypes.mean_similarities(features, found, present).argmax(dim=1)
