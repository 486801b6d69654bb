"""Han et al. 2018, "Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels", with FedAvg."""

import copy
from dataclasses import dataclass
from typing import Annotated, Literal, cast

from pydantic import Field
from torch import Tensor, nn

from rofl.core import losses
from rofl.core.losses import small_loss
from rofl.core.rng import derive, seeded
from rofl.core.tensors import Tensors, digest, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.local_sgd import MetricSums, SmallLossSgd
from rofl.methods.weights import fedavg, load_weights, model_weights, weight_change, weight_update
from rofl.models import Network


@dataclass(frozen=True)
class CoTeaching(SmallLossSgd):
    """Trains two networks; each learns from the samples on which the other one has a small loss.

    Both are broadcast and averaged; the first (`model`) is evaluated, the second (`aux`) is its peer.
    """

    tau: Annotated[float, Field(ge=0, lt=1)] | Literal["known"] = "known"  # this method has no estimate of it
    lr: Annotated[float, Field(gt=0)] = 0.15  # supplement, "Co-teaching"; 0.001 for Clothing1M

    def init(self, net: Network) -> ServerState:
        """Return two sets of initial weights: the network's, and a second set with a seed derived from the first."""
        first = model_weights(net)
        return ServerState(first, model_weights(_reinitialized(net, seed=int(digest(first)[:15], 16))))

    def zero_update(self, server_state: ServerState) -> Update:
        """Return no change of either network."""
        return Update(zeros_like(server_state.model), 0.0, zeros_like(server_state.aux))

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Run Algorithm 1 of Co-teaching on one client's data; each batch is one step of both networks."""
        rate = self.keep_rate(ctx)  # R(T)
        peer = copy.deepcopy(net)
        load_weights(peer, server_state.aux)
        optimizer = self.optimizer(nn.ModuleList([net, peer]), ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        net.train()
        peer.train()
        metrics = MetricSums()
        for _ in range(self.epochs):
            for index in data.batches(self.batch, order):
                inputs, labels = data.inputs(index, augment), data.labels[index]
                net_loss, peer_loss = _losses(net, inputs, labels), _losses(peer, inputs, labels)  # (B,) each
                picks, peer_picks = small_loss(net_loss.detach(), rate), small_loss(peer_loss.detach(), rate)
                loss = net_loss[peer_picks].mean() + peer_loss[picks].mean()  # each learns from the other's picks
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                metrics.add(len(index), loss=loss)
        change = weight_change(peer, server_state.aux, len(data))
        return Update(weight_update(net, server_state, len(data)), float(len(data)), change, metrics.sums()), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the means of both networks' weights (Eq. 10)."""
        peer = fedavg(ServerState(server_state.aux), Update(total.aux, total.weight))
        return ServerState(fedavg(server_state, total), peer)


def _losses(net: Network, inputs: Tensor, labels: Tensor) -> Tensor:
    logits, _ = net(inputs)
    return losses.cross_entropy(logits.log_softmax(dim=1), labels)


def _reinitialized(net: Network, seed: int) -> Network:
    """Return the same architecture with other initial weights; for pretrained weights only the head differs."""
    other = copy.deepcopy(net)
    with seeded(derive(seed, "peer")):
        for layer in (other.head if net.pretrained else other).modules():
            if hasattr(layer, "reset_parameters"):
                cast(nn.Linear, layer).reset_parameters()
    return other
