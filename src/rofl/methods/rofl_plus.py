"""An extension of rofl beyond the paper: labels are corrected by Bayes' rule, to the degree that the model is accurate.

docs/decisions/0015-labels-by-bayes-rule.md, 0017-skewed-clients.md and 0018-who-judges.md have the reasons and the
measurements. The memory term is that of early-learning regularization (Liu et al. 2020, arXiv 2007.00151). The weights
of all terms that are not in the paper are computed from sums over clients.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from rofl.core import centroids as c
from rofl.core import losses
from rofl.core.held_out_fit import HeldOutEstimate
from rofl.core.noise_posterior import positive_pattern, sharpen
from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods.base import Claims, RoundContext, ServerState, Update
from rofl.methods.inference import predict_client
from rofl.methods.local_sgd import MetricSums
from rofl.methods.noise_model import JUDGES, NoiseModel, sharpening_power
from rofl.methods.rofl import UNCONFIDENT, Rofl
from rofl.methods.weights import load_weights, model_weights, weight_update
from rofl.models import Network

_NO_WEIGHT = 1e-12  # of the memory term; 0 would change the shapes of updates
_OWN = "own/"  # prefix in the client state: the client's weights of its last round
_RECEIVED = "received"  # key in the client state: norm of the global weights that it received then
_HISTORY = "history"  # key in the client state: averaged log-probabilities of its samples, by the classifier
_CENTROID_HISTORY = "centroid_history"  # the same by the class-wise centroids
_HISTORY_MOMENTUM = 0.5  # of the histories of predictions, per round
_MIN_VARIANCE = 1e-5  # least variance of batch norm; leaving a client out could make one negative
_SKEWED = 0.25  # distance of label frequencies above which a client counts as skewed
_FIRST_CENTROIDS = (
    3  # first round with centroids; before, features grow by orders of magnitude while batch norm settles
)
_FIRST_MEMORY = 4  # first round with the memory term; before, clients gain agreement because they learn
_LOST_SAMPLES = 1.0  # added to each class count of a client before frequencies are computed


def without_client(model: Tensors, own: Tensors, share: float) -> Tensors:
    """Return the global weights as if one client had not taken part in the last round.

    With w = sum of n_j w_j / N, the mean of all others is w - n_k / (N - n_k) * (w_k - w). These weights do not contain
    what the client taught the model in that round, wrong labels included, so the client can judge its samples by them.

    Args:
        model: w, the weights after the round.
        own: w_k, the client's own weights in that round.
        share: n_k / N, below 1.

    >>> without_client({"w": torch.tensor(2.0)}, {"w": torch.tensor(5.0)}, share=0.25)
    {'w': tensor(1.)}
    """
    odds = share / (1 - share)
    without = {name: value - odds * (own[name] - value) for name, value in model.items()}
    for name in without:
        if name.endswith("running_var"):
            without[name] = without[name].clamp(min=_MIN_VARIANCE)
    return without


def prior_shift(counts: Tensor, prior: Tensor) -> Tensor:
    """Return the log-ratio (K,) of the class frequencies at a client to those over all clients.

    By Bayes' rule, adding it to the logits of the global model adapts them to this client.

    Args:
        counts: (K,) number of labels of this client per class.
        prior: (K,) the share of each label over all clients; zeros if not known yet.

    >>> prior_shift(torch.tensor([2, 0]), torch.tensor([0.5, 0.5])).exp()
    tensor([1.5000, 0.5000])
    """
    if not bool(prior.any()):
        return torch.zeros_like(prior)
    own = (counts + _LOST_SAMPLES) / (counts + _LOST_SAMPLES).sum()
    everywhere = (prior + 1e-3) / (prior + 1e-3).sum()
    return own.log() - everywhere.log()


def class_skew(counts: Tensor, prior: Tensor) -> float:
    """Return the total variation distance between the label frequencies of a client and of all; 0 if not known yet.

    Args:
        counts: (K,) number of labels of this client per class.
        prior: (K,) the share of each label over all clients; zeros if not known yet.

    >>> class_skew(torch.tensor([3, 1]), torch.tensor([0.5, 0.5]))
    0.25
    """
    if not bool(prior.any()):
        return 0.0
    return float((counts / counts.sum().clamp(min=1) - prior).abs().sum()) / 2


def _mix(history: Tensors, weight: float) -> Tensor:
    """Return the weighted mean (n, K) of the log-probabilities by classifier and by centroids.

    Before there are centroids, the classifier alone counts.

    Args:
        history: log-probabilities of a client's samples, by both.
        weight: the weight of the classifier.
    """
    by_classifier = history[_HISTORY]
    return torch.lerp(history.get(_CENTROID_HISTORY, by_classifier), by_classifier, weight)


def _length(model: Tensors) -> Tensor:
    """Return the norm of all weights, (1,) float64, which serves to recognise a model."""
    return torch.stack([value.double().square().sum() for value in model.values()]).sum().sqrt().reshape(1)


@dataclass(frozen=True)
class RoflPlus(Rofl):
    """Corrects labels to the degree that the model is believed, and regularizes against memorization.

    The paper's pseudo-labels train a model on its own predictions, which stops a model that is still learning. Here a
    sample's target is the posterior of its class given its image and its label. The judge of an image is the global
    model without the client's own contribution: its classifier, the similarity of its features to the class-wise
    centroids, or both, whichever explains the given labels of all clients best. The belief in the judge and the noise
    matrix are fitted to the given labels in every round, from sums over clients. If the judge is nearly always right,
    corrected labels are sharpened, so that the model does not learn the remainder of wrong labels. If clients memorize
    labels, a term with the memory of each sample's predictions regularizes them. A client whose label frequencies
    differ from the global ones always uses the centroids, too, and trains with logits shifted by its class
    frequencies. Towards the end, the server takes shorter steps, which has the effect of averaging over rounds.

    With `correct = false` and `memory = 0` this is `Rofl`. A client keeps the memory and the histories of its samples'
    predictions, and its own weights of the last round. None of these leave the client.
    """

    tau: Annotated[float, Field(ge=0, lt=1)] | Literal["known", "auto"] = "auto"  # no noise ratio is needed
    t_pl: Annotated[int, Field(ge=1)] = 10  # as in `Rofl`; corrections do not depend on it
    lambda_cen: Annotated[float, Field(ge=0)] = 0.0  # as in `Rofl`, with centroids that are fixed during a round
    lambda_e: Annotated[float, Field(ge=0)] = 0.0  # as in `Rofl`
    correct: bool = True  # targets by Bayes' rule; off: labels as given
    caution: Annotated[float, Field(ge=0, le=12)] = 6.0  # belief is this power of the estimated accuracy
    sharpness: Annotated[float, Field(ge=1, le=8)] = (
        2.0  # power of corrected labels if the model is nearly always right
    )
    leave_one_out: bool = True  # judge a client's samples by the model without its own contribution
    centroid_judge: bool = True  # judge samples by the centroids, too, if that explains the given labels better
    logit_adjustment: bool = True  # skewed clients shift logits by their class frequencies
    memory: Annotated[float, Field(ge=0)] = 20.0  # weight of the memory term if all labels are memorized
    memory_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.7  # momentum of the memory, per epoch
    server_step: Annotated[float, Field(gt=0, le=1)] = 0.3  # the server's step in the last round, at full belief
    step_from: Annotated[float, Field(ge=0, le=1)] = 0.3  # share of the rounds after which the step begins to shrink
    horizon: Annotated[int, Field(ge=0)] = 0  # rounds of the run; 0: as the experiment says
    clients: Annotated[int, Field(ge=0)] = 0  # of the run; 0: as the experiment says

    def with_rounds(self, rounds: int) -> Self:
        """Return the method for a run of this many rounds, unless `horizon` is set."""
        return self if self.horizon else replace(self, horizon=rounds)

    def with_clients(self, clients: int) -> Self:
        """Return the method for this number of clients, unless `clients` is set."""
        return self if self.clients else replace(self, clients=clients)

    def cautious(self) -> Self:
        """Return the method without corrections and memory; it still fits the noise, so updates keep their shapes."""
        memory = min(self.memory, _NO_WEIGHT) if self._goes_beyond else 0.0
        return replace(super().cautious(), correct=False, memory=memory)

    def init(self, net: Network) -> ServerState:
        """Return the state of `Rofl` with the initial noise model, whose belief is 0."""
        state = super().init(net)
        if not self._goes_beyond:
            return state
        noise_model = NoiseModel.initial(net.classes)
        return replace(state, aux=state.aux | noise_model.tensors(), kept=state.kept | noise_model.kept())

    def zero_update(self, server_state: ServerState) -> Update:
        """Return the zero sums of `Rofl` and of the evidence about the noise."""
        zero = super().zero_update(server_state)
        if not self._goes_beyond:
            return zero
        return replace(zero, aux=zero.aux | NoiseModel.zero_sums(len(server_state.aux["centroids"])))

    def check_sums(self, total: Update, server_state: ServerState, claims: Claims) -> str | None:
        """Check the sums of `Rofl`, and that the evidence about the noise is possible for this number of samples.

        Args:
            total: the update, or a sum of updates.
            server_state: the state that was broadcast.
            claims: the declared clients and samples.
        """
        problem = super().check_sums(total, server_state, claims)
        if problem or not self._goes_beyond:
            return problem
        return NoiseModel.read(server_state.aux).check(total.aux, claims.samples, claims.clients)

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        """Train on corrected labels with the memory term, and send the evidence about the noise."""
        if not self._goes_beyond:
            return super().client_update(net, server_state, client_state, data, ctx)
        noise_model = NoiseModel.read(server_state.aux)
        lambda_memory = self.memory * noise_model.resistance if ctx.index >= _FIRST_MEMORY else 0.0
        skewed = class_skew(data.class_counts(), noise_model.prior) > _SKEWED
        logits, features = self._judge_samples(net, server_state, client_state, data, ctx)  # (n, K), (n, d)
        history = self._history(noise_model, server_state, client_state, (logits, features), data, ctx)
        aux = {name: value.to(logits.device) for name, value in noise_model.zero_sums(data.classes).items()}
        posterior = given = one_hot(data.labels, data.classes).to(features.dtype)  # (n, K)
        if _HISTORY in history:
            judged = _mix(history, min(noise_model.classifier_weight, 0.5 if skewed else 1.0))  # (n, K)
            posterior = noise_model.posterior(judged, data.labels)
            aux |= noise_model.evidence([_mix(history, weight) for weight in JUDGES], data.labels)
            aux["fit/agreement"][0] = (logits.argmax(dim=1) == data.labels).sum()
            aux["fit/agreement"][1] = len(data)
        aux["fit/labels"] = data.class_counts().to(logits.dtype)
        aux["fit/clients"] += 1
        targets = self._targets(noise_model, given, posterior)  # (n, K)
        if ctx.index >= _FIRST_CENTROIDS:
            aux |= self._centroid_sums(server_state, features, posterior.to(features.dtype), data)
        else:
            aux |= super().zero_update(server_state).aux
        confident = self._confident_samples(server_state, features, data)  # (n,)
        if self.tau == "auto":
            aux[UNCONFIDENT] = torch.stack([~confident, torch.ones_like(confident)]).sum(dim=1).to(features.dtype)
        memory = client_state.get("memory", torch.zeros_like(logits)).clone()  # (n, K)
        shift = prior_shift(data.class_counts(), noise_model.prior) * (skewed and self.logit_adjustment)  # (K,)
        optimizer = self.optimizer(net, ctx)
        order, augment = ctx.rng("batches"), ctx.rng("augment")
        sums, agreed = MetricSums(), list[Tensor]()
        net.train()
        for epoch in range(self.epochs):
            for index in data.batches(self.batch, order):
                batch_logits, features = net(data.inputs(index, augment))  # (B, K), (B, d)
                log_probs = (batch_logits + shift).log_softmax(dim=1)
                probs = log_probs.exp()
                remembered = torch.lerp(probs.detach(), memory[index], self.memory_momentum)  # (B, K)
                memory[index] = remembered

                l_c = losses.cross_entropy(log_probs, targets[index]).mean()
                loss = l_c
                if lambda_memory > _NO_WEIGHT:
                    loss = loss + lambda_memory * losses.memory(probs, remembered).mean()
                if self.lambda_cen or self.lambda_e:
                    labels, mask = data.labels[index], confident[index]
                    loss = loss + self._paper_terms(server_state, log_probs, features, labels, mask, ctx)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                sums.add(len(index), loss_c=l_c, loss=loss)
                if epoch == self.epochs - 1:
                    agreed.append(batch_logits.detach().argmax(dim=1) == data.labels[index])
        metrics = sums.sums() | {
            "confident": float(confident.sum()) * self.epochs
        }  # counted once per epoch, like `samples`
        after = torch.cat(agreed)
        aux["fit/agreement"][2:] = torch.stack([after, torch.ones_like(after)]).sum(dim=1)
        step = self._server_step(server_state, ctx)
        own = {name: torch.lerp(server_state.model[name], value, step) for name, value in model_weights(net).items()}
        state = history | {"memory": memory, _RECEIVED: _length(server_state.model)}
        state |= {_OWN + name: value for name, value in own.items()}
        return Update(weight_update(net, server_state, len(data)), float(len(data)), aux, metrics), state

    def server_update(self, server_state: ServerState, total: Update, ctx: RoundContext) -> ServerState:
        """Return the state of `Rofl`, with shorter steps of the weights towards the end, and the newly fitted noise."""
        state = super().server_update(server_state, total, ctx)
        if not self._goes_beyond:
            return state
        step = self._server_step(server_state, ctx)
        model = {name: torch.lerp(old, state.model[name], step) for name, old in server_state.model.items()}
        before = NoiseModel.read(server_state.aux, server_state.kept)
        noise_model = before.updated(total.aux, total.weight, self.caution, self.clients)
        return ServerState(model, state.aux | noise_model.tensors(), noise_model.kept())

    def held_out_pattern(self, server_state: ServerState) -> Tensor | None:
        """Return the pattern of wrong labels (K, K) of the noise model."""
        if not self._goes_beyond:
            return None
        return positive_pattern(NoiseModel.read(server_state.aux).pattern)

    def with_held_out(self, server_state: ServerState, estimate: HeldOutEstimate) -> ServerState:
        """Return the state whose noise model has what held-out labels show.

        Args:
            server_state: the state before the round.
            estimate: the share of wrong labels, and whether the agreement with held-out labels has fallen.
        """
        if not self._goes_beyond:
            return server_state
        noise_model = NoiseModel.read(server_state.aux).with_held_out(estimate)
        return replace(server_state, aux=server_state.aux | noise_model.tensors())

    @property
    def _goes_beyond(self) -> bool:
        return self.correct or self.memory > 0

    def _judge_samples(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Tensor, Tensor]:
        """Return logits (n, K) and features (n, d) by the global model without this client's last contribution.

        The contribution is removed only if the client took part in the last round. If the model is the same as in that
        round, the round was undone, and there is no contribution to remove.
        """
        share = len(data) / max(NoiseModel.read(server_state.aux).samples, 1.0)
        took_part = "round" in client_state and int(client_state["round"]) == ctx.index - 1
        undone = _RECEIVED in client_state and bool(client_state[_RECEIVED] == _length(server_state.model))
        if not (self.leave_one_out and took_part and share < 1) or undone:
            return predict_client(net, data)
        own = {name: client_state[_OWN + name] for name in server_state.model}
        load_weights(net, without_client(server_state.model, own, share))
        judged = predict_client(net, data)
        load_weights(net, server_state.model)
        return judged

    def _history(
        self,
        noise_model: NoiseModel,
        server_state: ServerState,
        client_state: Tensors,
        judged: tuple[Tensor, Tensor],
        data: ClientDataset,
        ctx: RoundContext,
    ) -> Tensors:
        """Return the new client state with the averaged log-probabilities by the classifier and by the centroids.

        Args:
            noise_model: the noise model of the last round.
            server_state: the state that the server broadcast.
            client_state: the state of the client's last round.
            judged: (n, K) logits and (n, d) features of the samples.
            data: the client's samples.
            ctx: the round; in the first one there are no predictions yet.
        """
        state = {"round": torch.tensor([ctx.index])}
        if ctx.index == 1:
            return state
        logits, features = judged
        shift = prior_shift(data.class_counts(), noise_model.prior)  # (K,)
        now = {_HISTORY: logits.log_softmax(dim=1)}
        if self.centroid_judge and bool(c.has_centroid(server_state.aux["centroids"]).any()):
            now[_CENTROID_HISTORY] = c.centroid_log_probs(features, server_state.aux["centroids"])
        for name, log_probs in now.items():
            shifted = (log_probs + shift).log_softmax(dim=1)  # (n, K)
            state[name] = torch.lerp(shifted, client_state.get(name, shifted), _HISTORY_MOMENTUM)
        return state

    def _centroid_sums(
        self, server_state: ServerState, features: Tensor, posterior: Tensor, data: ClientDataset
    ) -> Tensors:
        """Return the summands of Eq. 11 and 12; each sample counts for each class by its probability.

        Args:
            server_state: the state that the server broadcast.
            features: (n, d) by the judging model.
            posterior: (n, K) the probabilities of the classes.
            data: the client's samples.
        """
        stored = server_state.aux["centroids"]  # (K, d) f_G
        means, counts = c.weighted_means(features, posterior)  # (K, d), (K,)
        local = torch.where((counts > 0).unsqueeze(1), means, stored)
        weighted, similarity = c.weighted_centroids(local, stored, data.class_counts())  # Eq. 12
        return {"centroids": weighted.where(similarity > 0, 0.0), "similarity": similarity}  # 0.0 instead of -0.0

    def _confident_samples(self, server_state: ServerState, features: Tensor, data: ClientDataset) -> Tensor:
        """Return the mask of Eq. 7, (n,), by the global centroids; classes without one use the client's own mean."""
        stored = server_state.aux["centroids"]
        means, _ = c.class_means(features, data.labels, data.classes)
        return self._confident(features, data.labels, torch.where(c.has_centroid(stored).unsqueeze(1), stored, means))

    def _paper_terms(
        self,
        server_state: ServerState,
        log_probs: Tensor,
        features: Tensor,
        labels: Tensor,
        mask: Tensor,
        ctx: RoundContext,
    ) -> Tensor:
        """Return the terms of Eq. 9 besides L_c; they are off by default.

        Args:
            server_state: the state that the server broadcast, with the centroids.
            log_probs: (B, K) of the model.
            features: (B, d).
            labels: (B,) as given.
            mask: (B,) confident samples.
            ctx: the round, for the weight of L_cen.
        """
        lambda_cen = self.lambda_cen * losses.linear_ramp(
            ctx.index, self.cen_start * self.t_pl, self.cen_rise * self.t_pl
        )
        l_cen = losses.centroid(features, server_state.aux["centroids"], labels, mask, self.cen_form)  # Eq. 5
        return lambda_cen * l_cen + self.lambda_e * losses.entropy(log_probs).mean()

    def _targets(self, noise_model: NoiseModel, given: Tensor, posterior: Tensor) -> Tensor:
        """Return the training targets (n, K): the given labels, corrected to the degree that the model is believed.

        Args:
            noise_model: the noise model of the last round.
            given: (n, K) the labels, one-hot.
            posterior: (n, K) the probabilities of the classes; in the first round equal to `given`.
        """
        if not self.correct:
            return given
        power = sharpening_power(noise_model.accuracy, given.shape[1], self.sharpness)
        return torch.lerp(given, sharpen(posterior, power).to(given.dtype), noise_model.correction)

    def _server_step(self, server_state: ServerState, ctx: RoundContext) -> float:
        """Return the server's step size: 1 at first, then falling linearly, at full belief to `server_step`.

        It stays 1 if held-out labels show that hardly any label is wrong: then there is nothing to average out.
        """
        if not self.horizon:
            return 1.0
        start = self.step_from * self.horizon
        ramp = losses.linear_ramp(ctx.index, start, self.horizon - start)
        return 1 - (1 - self.server_step) * NoiseModel.read(server_state.aux).settled * ramp
