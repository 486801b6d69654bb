"""Yang et al. 2020, "Robust Federated Learning with Noisy Labels", arXiv 2012.01700: Algorithm 1 of the supplement."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import centroids as c
from rofl.core import losses
from rofl.core.selection import keep_rate, small_loss
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import MetricSums, SmallLossSgd
from rofl.methods.pseudo_labels import PseudoLabels
from rofl.methods.weights import fedavg, model_weights, weight_update
from rofl.models import Network

_MOST = 0.9  # tau = "auto" leaves out at most this share: early on nearly nothing may be confident


@dataclass(frozen=True)
class Rofl(SmallLossSgd):
    """Class-wise centroids travel with the weights; they decide which given labels a client believes.

    docs/method.md sets each line of the paper beside the function that does it.
    """

    t_pl: Annotated[int, Field(ge=1)] = 100  # first round that uses pseudo-labels; 30 for MNIST, 100 for CIFAR-10
    lambda_cen: Annotated[float, Field(ge=0)] = 1.0  # weight of L_cen once it has risen
    cen_start: Annotated[float, Field(ge=0)] = 1.0  # lambda_cen is 0 until this many times T_pl ...
    cen_rise: Annotated[float, Field(ge=0)] = 1.0  # ... and rises over this many times T_pl
    cen_form: losses.CentroidForm = "dimension"  # how Eq. 5 is summed
    lambda_e: Annotated[float, Field(ge=0)] = 0.8  # weight of the entropy term L_e
    pseudo: Literal["global", "naive", "none"] = "global"  # who labels the unconfident samples (Eq. 8)
    soft: bool = True  # pseudo-labels as probabilities; off: as classes
    mask: bool = True  # confident samples (Eq. 7); off: believe all labels or replace them all
    global_centroids: bool = True  # Eq. 4 and 13; off: each client uses its own class means

    def centralized(self) -> "Rofl":
        """The supplement's centralized form ("Ours"): naive pseudo-labels, and centroids of all data."""
        return replace(super().centralized(), pseudo="naive")

    def init(self, net: Network) -> ServerState:
        """Initial weights, and no centroid for any class yet."""
        aux = {"centroids": torch.zeros(net.classes, net.feature_size)}
        return ServerState(model_weights(net), aux | self._doubt(1))

    def zero_update(self, server_state: ServerState) -> Update:
        """No change: zero sums for Eq. 10 and Eq. 11."""
        stored = server_state.aux["centroids"]
        sums = {"centroids": torch.zeros_like(stored), "similarity": torch.zeros(len(stored), 1)}
        return Update(zeros_like(server_state.model), 0.0, sums | self._doubt(2))

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """LocalUpdate of Algorithm 1."""
        stored = server_state.aux["centroids"]  # (K, d) f_G
        relabel = ctx.index >= self.t_pl
        rate = self._keep_rate(server_state, ctx)  # R(t)
        lambda_cen = self.lambda_cen * losses.linear_ramp(
            ctx.index, self.cen_start * self.t_pl, self.cen_rise * self.t_pl
        )

        pseudo = PseudoLabels(net, data, self.soft) if relabel and self.pseudo != "none" else None  # y-hat
        local = self._start(net, stored, data, pseudo)  # f_k,0
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        steps, masks = MetricSums(), list[Tensor]()
        for epoch in range(self.epochs):
            if pseudo and self.pseudo == "naive" and epoch > 0:
                pseudo = PseudoLabels(net, data, self.soft)  # the local model's own opinion
            net.train()
            for index in data.batches(self.batch, order):
                labels = data.labels[index]  # (B,)
                logits, features = net(data.inputs(index, augment))  # (B, K), (B, d)
                fixed = features.detach()  # for all that judges; only L_cen has the gradient
                log_probs = logits.log_softmax(dim=1)
                given = losses.cross_entropy(log_probs, labels)  # (B,)
                chosen = small_loss(given.detach(), rate)  # Eq. 2
                mask = self._confident(fixed, labels, local)  # Eq. 6, 7

                guess = pseudo.of(index, ~mask if self.mask else mask) if pseudo else None  # Eq. 8
                l_c = (self._classification(given, log_probs, mask, guess) if relabel else given).mean()  # Eq. 1
                l_cen = losses.centroid(features, local, labels, mask, self.cen_form)  # Eq. 5
                l_e = losses.entropy(log_probs).mean()
                loss = l_c + lambda_cen * l_cen + self.lambda_e * l_e  # Eq. 9
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

                local = self._blend(local, *c.class_means(fixed, labels, data.classes, chosen))  # Eq. 3, 13
                steps.add(len(index), loss_c=l_c, loss_cen=l_cen, loss_e=l_e, loss=loss)
                masks.append(mask)
        believed = torch.cat(masks).view(self.epochs, -1)  # in the order of their batches
        metrics = steps.sums() | {"confident": float(believed.sum())}
        weighted, similarity = c.weighted_centroids(local, stored, data.class_counts())  # Eq. 12
        sums = {"centroids": weighted, "similarity": similarity}
        if self.tau == "auto":
            sums["doubt"] = torch.stack([~believed[-1], torch.ones_like(believed[-1])]).sum(dim=1).to(stored.dtype)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), sums, metrics), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Eq. 10 for the weights, Eq. 11 for the centroids."""
        sums = total.aux
        merged = c.global_centroids(sums["centroids"], sums["similarity"], server_state.aux["centroids"])
        doubt = {"doubt": sums["doubt"][:1] / sums["doubt"][1:].clamp(min=1)} if self.tau == "auto" else {}
        return ServerState(fedavg(server_state, total), {"centroids": merged} | doubt)

    def _doubt(self, size: int) -> Tensors:
        """What tau = "auto" lets travel besides: two counts up, their quotient down."""
        return {"doubt": torch.zeros(size)} if self.tau == "auto" else {}

    def _keep_rate(self, server_state: ServerState, ctx: RoundContext) -> float:
        """R(t), with tau as given, or as the share of samples that were not confident in the last round."""
        if self.tau != "auto":
            return self.keep_rate(ctx)
        return keep_rate(ctx.index, min(max(float(server_state.aux["doubt"]), 0.0), _MOST), self.warmup)

    def _start(self, net: Network, stored: Tensor, data: ClientDataset, pseudo: PseudoLabels | None) -> Tensor:
        """f_k,0. A class without a global centroid (all of them in round 1) starts from the naive average (Eq. 3)."""
        use = c.has_centroid(stored) & self.global_centroids  # (K,)
        if bool((use | (data.class_counts() == 0)).all()):
            return stored
        logits, features = predict_client(net, data)  # of the received model: C_G(F_G(x)), F_G(x)
        if pseudo:
            pseudo.learn(torch.arange(len(data), device=logits.device), logits)  # the one pass serves both
        naive, _ = c.class_means(features, data.labels, data.classes)
        return torch.where(use.unsqueeze(1), stored, naive)

    def _confident(self, features: Tensor, labels: Tensor, local: Tensor) -> Tensor:
        """Eq. 7, or everybody where the mask is off."""
        return c.confident_mask(features, labels, local) if self.mask else torch.ones_like(labels, dtype=torch.bool)

    def _classification(self, given: Tensor, log_probs: Tensor, mask: Tensor, guess: Tensor | None) -> Tensor:
        """Eq. 1 per sample from T_pl on, with the rows of the paper's ablation (Table 4): mask x pseudo-label."""
        if guess is None:
            return given * mask  # unconfident samples are removed
        other = losses.cross_entropy(log_probs, guess)
        return losses.classification(given, other, mask) if self.mask else other

    def _blend(self, local: Tensor, means: Tensor, counts: Tensor) -> Tensor:
        """Eq. 13, or the batch's own means where global centroids are off."""
        if self.global_centroids:
            return c.update_centroids(local, means, counts)
        return torch.where((counts > 0).unsqueeze(1), means, local)
