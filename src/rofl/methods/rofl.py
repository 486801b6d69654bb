"""Yang et al. 2020, "Robust Federated Learning with Noisy Labels", arXiv 2012.01700: Algorithm 1 of the supplement."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from rofl.core import centroids as c
from rofl.core import losses
from rofl.core.losses import keep_rate, small_loss
from rofl.core.tensors import Tensors, zeros_like
from rofl.data import ClientDataset
from rofl.methods.base import Claims, RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import MetricSums, SmallLossSgd
from rofl.methods.pseudo_labels import AGREED, STATE, EarnedStart, PseudoLabels
from rofl.methods.weights import fedavg, model_weights, weight_update
from rofl.models import Network

_MAX_TAU = 0.9  # tau = "auto" leaves out at most this share, because hardly any sample may be confident at first
_NEVER = 2**31  # a round that no run reaches
UNCONFIDENT = "doubt"  # key in `aux` of the unconfident rate; checkpoints hold it under this name


@dataclass(frozen=True)
class Rofl(SmallLossSgd):
    """Class-wise centroids are exchanged with the weights and decide which given labels a client trusts.

    A sample is confident if the nearest centroid to its features is that of its label. From round T_pl on,
    the others are trained on pseudo-labels. docs/method.md maps each line of the paper to the function that does it.
    """

    t_pl: Annotated[int, Field(ge=1)] | Literal["auto", "never"] = 100  # first round with pseudo-labels; 30 for MNIST
    lambda_cen: Annotated[float, Field(ge=0)] = 1.0  # weight of L_cen once it has risen
    cen_start: Annotated[float, Field(ge=0)] = 1.0  # lambda_cen is 0 until this many times T_pl ...
    cen_rise: Annotated[float, Field(ge=0)] = 1.0  # ... and rises over this many times T_pl
    cen_form: losses.CentroidForm = "dimension"  # how Eq. 5 is summed
    lambda_e: Annotated[float, Field(ge=0)] = 0.8  # weight of the entropy term L_e
    pseudo: Literal["global", "naive", "none"] = "global"  # the model that labels the unconfident samples (Eq. 8)
    soft: bool = True  # pseudo-labels as probabilities; off: as classes
    mask: bool = True  # select confident samples (Eq. 7); off: trust all labels or replace all of them
    global_centroids: bool = True  # Eq. 4 and 13; off: each client uses its own class means

    def centralized(self) -> "Rofl":
        """Return the supplement's centralized form ("Ours"): naive pseudo-labels, and centroids of all data."""
        return replace(super().centralized(), pseudo="naive")

    def cautious(self) -> Self:
        """Return the method without pseudo-labels, centroid loss and entropy term; it trains on the given labels."""
        return replace(self, t_pl="never" if isinstance(self.t_pl, str) else _NEVER, lambda_e=0.0)

    def init(self, net: Network) -> ServerState:
        """Return the initial weights and zero centroids (K, d)."""
        aux = {"centroids": torch.zeros(net.classes, net.feature_size)}
        start = {STATE: EarnedStart.initial().numbers} if self._waits else {}
        return ServerState(model_weights(net), aux | self._unconfident(1) | start)

    def zero_update(self, server_state: ServerState) -> Update:
        """Return zero sums for Eq. 10 and Eq. 11."""
        global_centroids = server_state.aux["centroids"]  # (K, d)
        sums = {"centroids": torch.zeros_like(global_centroids), "similarity": torch.zeros(len(global_centroids), 1)}
        agreed = {AGREED: torch.zeros(2)} if self._waits else {}
        return Update(zeros_like(server_state.model), 0.0, sums | self._unconfident(2) | agreed)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train on one client's data: LocalUpdate of Algorithm 1.

        The update's `aux` has the centroids weighted by their similarity to the global ones, and these similarities.
        """
        global_centroids = server_state.aux["centroids"]  # (K, d) f_G
        t_pl = self._first_relabelled(server_state)
        relabel = ctx.index >= t_pl
        rate = self._keep_rate(server_state, ctx)  # R(t)
        lambda_cen = self.lambda_cen * losses.linear_ramp(ctx.index, self.cen_start * t_pl, self.cen_rise * t_pl)
        lambda_e = self.lambda_e if relabel or not self._waits else 0.0  # the entropy term uses predictions, too

        pseudo = PseudoLabels(net, data, self.soft) if relabel and self.pseudo != "none" else None  # y-hat
        local_centroids = self._initial_centroids(net, global_centroids, data, pseudo)  # (K, d) f_k,0
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        sums, masks, agreed = MetricSums(), list[Tensor](), list[Tensor]()
        for epoch in range(self.epochs):
            if pseudo and self.pseudo == "naive" and epoch > 0:
                pseudo = PseudoLabels(net, data, self.soft)  # by the current local model
            net.train()
            for index in data.batches(self.batch, order):
                labels = data.labels[index]  # (B,)
                logits, features = net(data.inputs(index, augment))  # (B, K), (B, d)
                detached = features.detach()  # centroids and masks need no gradient; L_cen does
                log_probs = logits.log_softmax(dim=1)
                label_loss = losses.cross_entropy(log_probs, labels)  # (B,)
                small = small_loss(label_loss.detach(), rate)  # Eq. 2
                mask = self._confident(detached, labels, local_centroids)  # (B,) Eq. 6, 7

                targets = pseudo.of(index, ~mask if self.mask else mask) if pseudo else None  # Eq. 8
                per_sample = self._classification(label_loss, log_probs, mask, targets) if relabel else label_loss
                l_c = per_sample.mean()  # Eq. 1
                l_cen = losses.centroid(features, local_centroids, labels, mask, self.cen_form)  # Eq. 5
                l_e = losses.entropy(log_probs).mean()
                loss = l_c + lambda_cen * l_cen + lambda_e * l_e  # Eq. 9
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

                means, counts = c.class_means(detached, labels, data.classes, small)  # Eq. 3
                local_centroids = self._update_centroids(local_centroids, means, counts)  # Eq. 13
                sums.add(len(index), loss_c=l_c, loss_cen=l_cen, loss_e=l_e, loss=loss)
                masks.append(mask)
                if self._waits and epoch == 0:
                    agreed.append(log_probs.detach().argmax(dim=1) == labels)  # before the sample is learnt
        confident = torch.cat(masks).view(self.epochs, -1)  # (epochs, n), in the order of the batches
        metrics = sums.sums() | {"confident": float(confident.sum())}
        weighted, similarity = c.weighted_centroids(local_centroids, global_centroids, data.class_counts())  # Eq. 12
        aux = {"centroids": weighted, "similarity": similarity}
        if self.tau == "auto":
            counted = torch.stack([~confident[-1], torch.ones_like(confident[-1])]).sum(dim=1)  # unconfident, all
            aux[UNCONFIDENT] = counted.to(global_centroids.dtype)
        if self._waits:
            predicted = torch.cat(agreed)  # (n,)
            counted = torch.stack([predicted, torch.ones_like(predicted)]).sum(dim=1)
            aux[AGREED] = counted.to(global_centroids.dtype)
        return Update(weight_update(net, server_state, len(data)), float(len(data)), aux, metrics), {}

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the state after Eq. 10 for the weights and Eq. 11 for the centroids."""
        sums = total.aux
        aux = {"centroids": c.global_centroids(sums["centroids"], sums["similarity"], server_state.aux["centroids"])}
        if self.tau == "auto":
            aux[UNCONFIDENT] = sums[UNCONFIDENT][:1] / sums[UNCONFIDENT][1:].clamp(min=1)
        if self._waits:
            aux[STATE] = self._updated_start(server_state, aux, sums[AGREED], ctx).numbers
        return ServerState(fedavg(server_state, total), aux)

    def check_sums(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Check the sums of Eq. 11 and 12 and the counts of samples; return the problem, or None.

        Args:
            total: the update, or a sum of updates.
            server_state: the state that was broadcast.
            claims: the declared clients and samples.
        """
        sums, stored = total.aux, server_state.aux["centroids"]
        for name, counted in sums.items():
            if counted.shape == (2,) and not 0 <= float(counted[0]) <= float(counted[1]) <= claims.samples:
                return f"it counts {float(counted[0]):.6g} of {float(counted[1]):.6g} samples as {name!r}"
        return c.check_centroid_sums(sums["centroids"], sums["similarity"], stored, claims.clients)

    @property
    def _waits(self) -> bool:
        """Whether T_pl is not a fixed round, but "auto" or "never"."""
        return isinstance(self.t_pl, str)

    def _first_relabelled(self, server_state: ServerState) -> int:
        """Return T_pl; a round that no run reaches if it is not known yet or "never"."""
        if not isinstance(self.t_pl, str):
            return self.t_pl
        return (EarnedStart.read(server_state.aux).t_pl if self.t_pl == "auto" else None) or _NEVER

    def _updated_start(self, server_state: ServerState, aux: Tensors, counts: Tensor, ctx: RoundContext) -> EarnedStart:
        """Return the state that determines T_pl, after a round.

        Args:
            server_state: the state before the round.
            aux: the entries of `aux` after the round.
            counts: (2,) samples whose label was predicted, and all.
            ctx: the round.
        """
        wrong = None if self.tau == "auto" else float(self.tau)
        return EarnedStart.read(server_state.aux).updated(counts, ctx.index, wrong, len(aux["centroids"]))

    def _unconfident(self, size: int) -> Tensors:
        """Return the zero of `aux` for tau = "auto": two counts up (size 2), their quotient down (size 1)."""
        return {UNCONFIDENT: torch.zeros(size)} if self.tau == "auto" else {}

    def _keep_rate(self, server_state: ServerState, ctx: RoundContext) -> float:
        """Return R(t), with the given tau or with the share of unconfident samples in the last round."""
        if self.tau != "auto":
            return self.keep_rate(ctx)
        tau = min(max(float(server_state.aux[UNCONFIDENT]), 0.0), _MAX_TAU)
        return keep_rate(ctx.index, tau, self.warmup)

    def _initial_centroids(
        self, net: Network, global_centroids: Tensor, data: ClientDataset, pseudo: PseudoLabels | None
    ) -> Tensor:
        """Return f_k,0 (K, d).

        A class without a global centroid (all of them in round 1) starts from the mean feature of the client's samples
        with that label (Eq. 3), which needs a pass over them.

        Args:
            net: the received model.
            global_centroids: (K, d) f_G.
            data: the client's samples.
            pseudo: stores the predictions of that pass, so that it needs no pass of its own.
        """
        use_global = c.has_centroid(global_centroids) & self.global_centroids  # (K,)
        if bool((use_global | (data.class_counts() == 0)).all()):
            return global_centroids
        logits, features = predict_client(net, data)  # C_G(F_G(x)), F_G(x)
        if pseudo:
            pseudo.learn(torch.arange(len(data), device=logits.device), logits)
        means, _ = c.class_means(features, data.labels, data.classes)
        return torch.where(use_global.unsqueeze(1), global_centroids, means)

    def _confident(self, features: Tensor, labels: Tensor, centroids: Tensor) -> Tensor:
        """Return the mask of Eq. 7, (B,); all True if the mask is off.

        Args:
            features: (B, d), without gradient.
            labels: (B,) the given labels.
            centroids: (K, d) the client's.
        """
        if not self.mask:
            return torch.ones_like(labels, dtype=torch.bool)
        return c.confident_mask(features, labels, centroids)

    def _classification(
        self, label_loss: Tensor, log_probs: Tensor, mask: Tensor, pseudo_labels: Tensor | None
    ) -> Tensor:
        """Return Eq. 1 per sample, (B,), from T_pl on, for each row of the paper's ablation (Table 4).

        Args:
            label_loss: (B,) cross-entropy with the given labels.
            log_probs: (B, K) of the model.
            mask: (B,) confident samples.
            pseudo_labels: (B, K) or (B,) y-hat; None: unconfident samples are left out instead.
        """
        if pseudo_labels is None:
            return label_loss * mask
        pseudo_loss = losses.cross_entropy(log_probs, pseudo_labels)
        return losses.classification(label_loss, pseudo_loss, mask) if self.mask else pseudo_loss

    def _update_centroids(self, centroids: Tensor, means: Tensor, counts: Tensor) -> Tensor:
        """Return Eq. 13, or the batch's class means if global centroids are off.

        Args:
            centroids: (K, d) before the batch.
            means: (K, d) class means of the batch's small-loss samples.
            counts: (K,) the number of samples in each mean.
        """
        if self.global_centroids:
            return c.update_centroids(centroids, means, counts)
        return torch.where((counts > 0).unsqueeze(1), means, centroids)
