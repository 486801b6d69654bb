"""Han et al. 2018, "Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels", with FedAvg."""

import copy
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from pydantic import Field
from torch import Tensor, nn

from rofl.core import losses
from rofl.core.seeds import derive, seeded
from rofl.core.selection import small_loss
from rofl.core.tensors import Tensors, digest, zeros_like
from rofl.data import Shard
from rofl.methods.base import Global, Round, Update
from rofl.methods.training import SmallLossSgd, Steps, fedavg, load_weights, weight_change, weight_update, weights
from rofl.models import Network


@dataclass(frozen=True)
class CoTeaching(SmallLossSgd):
    """Two networks; each learns from the samples that the other one finds easy.

    Both are broadcast and averaged; the first is the model that is evaluated.
    """

    tau: Annotated[float, Field(ge=0, lt=1)] | Literal["known"] = "known"  # nothing here to estimate it from
    lr: Annotated[float, Field(gt=0)] = 0.15  # supplement, "Co-teaching"; 0.001 for Clothing1M

    def begin(self, net: Network) -> Global:
        """Two sets of initial weights: the given network's, and others drawn from a seed that follows from them."""
        first = weights(net)
        return Global(first, weights(_another(net, seed=int(digest(first)[:15], 16))))

    def blank(self, glob: Global) -> Update:
        """No change of either network."""
        return Update(zeros_like(glob.model), 0.0, zeros_like(glob.extra))

    def client(self, net: Network, glob: Global, state: Tensors, data: Shard, rnd: Round) -> tuple[Update, Tensors]:
        """Algorithm 1 of Co-teaching on one client's data."""
        rate = self.keep_rate(rnd)  # R(T)
        peer = copy.deepcopy(net)
        load_weights(peer, glob.extra)
        optimizer = self.optimizer(nn.ModuleList([net, peer]), rnd)
        order, augment = rnd.rng("batches"), rnd.rng("augment")
        net.train()
        peer.train()
        steps = Steps()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                inputs, labels = data.inputs(index, augment), data.labels[index]
                own, others = _losses(net, inputs, labels), _losses(peer, inputs, labels)  # (B,) each
                picks, peer_picks = small_loss(own.detach(), rate), small_loss(others.detach(), rate)
                loss = own[peer_picks].mean() + others[picks].mean()  # each is taught by the other
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                steps.add(len(index), loss=loss)
        change = weight_change(peer, glob.extra, len(data))
        return Update(weight_update(net, glob, len(data)), float(len(data)), change, steps.sums()), {}

    def server(self, glob: Global, total: Update, rnd: Round) -> Global:
        """Eq. 10 for both networks."""
        peer = fedavg(Global(glob.extra), Update(total.extra, total.weight))
        return Global(fedavg(glob, total), peer)


def _losses(net: Network, inputs: Tensor, labels: Tensor) -> Tensor:
    logits, _ = net(inputs)
    return losses.cross_entropy(logits.log_softmax(dim=1), labels)


def _another(net: Network, seed: int) -> Network:
    """The same architecture with other initial weights; published ones stay, and only the classifier differs."""
    other = copy.deepcopy(net)
    with seeded(derive(seed, "peer")):
        for layer in (other.classifier if net.pretrained else other).modules():
            if hasattr(layer, "reset_parameters"):
                cast(nn.Linear, layer).reset_parameters()
    return other
