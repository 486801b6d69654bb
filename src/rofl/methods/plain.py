"""FedAvg with cross-entropy (McMahan et al. 2017): the paper's "Cross Entropy Loss"."""

from dataclasses import dataclass

import torch.nn.functional as F

from rofl.core.tensors import Tensors, zeros_like
from rofl.data import Shard
from rofl.methods.base import Global, Round, Update
from rofl.methods.training import LocalSgd, Steps, fedavg, weight_update, weights
from rofl.models import Network


@dataclass(frozen=True)
class Plain(LocalSgd):
    """Every label is believed."""

    def begin(self, net: Network) -> Global:
        """Initial weights."""
        return Global(weights(net))

    def blank(self, glob: Global) -> Update:
        """No change."""
        return Update(zeros_like(glob.model), 0.0)

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        """A few epochs of SGD on the given labels."""
        optimizer = self.optimizer(net, rnd)
        order, augment = rnd.rng("batches"), rnd.rng("augment")
        net.train()
        steps = Steps()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                logits, _ = net(data.inputs(index, augment))  # (B, K)
                loss = F.cross_entropy(logits, data.labels[index])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps.add(len(index), loss=loss)
        return Update(weight_update(net, glob, len(data)), float(len(data)), metrics=steps.sums()), {}

    def server(self, glob: Global, total: Update, rnd: Round) -> Global:
        """Eq. 10."""
        return Global(fedavg(glob, total))
