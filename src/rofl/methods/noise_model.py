"""The noise model of rofl-plus: clients send sums of evidence, the server fits the model and broadcasts it.

docs/decisions/0015-labels-by-bayes-rule.md and 0018-who-judges.md have the reasons and the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rofl.core import noise, noise_fit, noise_posterior
from rofl.core.held_out_fit import HeldOutEstimate
from rofl.core.likelihood_bounds import are_possible, matrix_bounds
from rofl.core.tensors import Tensors

_FIRST_RATE = 0.2  # symmetric noise that the first fit starts from; from 0 it could never rise
_MAX_RATE = 0.8
_FULL_BELIEF = 0.8  # estimated accuracy above chance from which on the belief is 1; lower if most labels are wrong
_FULL_ODDS = 3.0  # if model and label differ, the model is right this many times as often: the belief is 1, too
_FULL_SHARPNESS = 0.9  # estimated accuracy above chance from which on corrected labels are fully sharpened
_FULL_NEED = 0.1  # rate of wrong labels from which on labels are fully corrected
_SOME_NOISE = (
    0.1  # rate up to which a believed model is not regularized: its gain in training is learning, not memorization
)
_FULL_DISAGREEMENT = 0.2  # share of labels that the model does not predict from which on memorization counts fully
_NO_GAP = 0.2  # share of the disagreements that local training may remove before it counts as memorization
_CHUNK = 2**20  # probabilities computed at a time, over all temperatures
_MIX = 0.01  # share of symmetric noise in Q, so that no label is impossible
_BELIEF_DECAY = 0.97  # per round, so that a temporary drop of the estimate does not stop corrections at once
_RATE_BELIEF = 0.5  # belief from which on the highest rate is kept; a weak model takes its mistakes for wrong labels
_LEAST_RATE = 1e-3  # of wrong labels in Q; at 0, no label could be doubted
_RATE_MOMENTUM = 0.5  # momentum of the rate over rounds
_DOUBT = 30.0  # see `noise_fit.expected_rate`
_MANY = 400  # samples; of fewer, the share of sure ones is uncertain, and less depends on it
_ROUNDING = 2**-7  # relative rounding of evidence in transit, as bfloat16 and twice over
_SLACK = 0.1  # tolerance of the bounds of evidence, for the rest of the rounding
JUDGES = (1.0, 0.5, 0.0)  # weight of the classifier in each judge; the centroids have the rest
_NAMES = ("matrix", "pattern", "prior", "numbers")  # of the fields that are broadcast
_KEPT = ("counts", "confusion")  # of the fields that stay at the server
_PREFIX = "noise/"  # of their keys in `aux` and `kept`
_TEMPERATURE, _BELIEF, _GAP, _WEIGHT, _RATE, _HIGHEST, _ACCURACY, _JUDGE = range(8)  # indices in `noise/numbers`
_HELD_OUT, _DEVIATION = 8, 9  # the rate of held-out labels and its standard deviation
_TRUST = 10  # 1, or less if the agreement with held-out labels has fallen
_UNKNOWN = -1.0  # rate of held-out labels if there is none


def deserved_belief(accuracy: float, classes: int, rate: float = 0.0, caution: float = 6.0) -> float:
    """Return the belief in a model's predictions, 0 to 1, from an estimate of its accuracy.

    It grows with a power of the accuracy above chance, so it is close to zero at first. A model that is believed too
    early stops learning, and one that is believed too little learns like plain FedAvg. With more than 40 % of wrong
    labels a less accurate model is believed: it is still right more often than the labels that it replaces.

    Args:
        accuracy: the estimated accuracy, which is the mean confidence at the temperature that fits the given labels.
        classes: the number of classes K; by chance, 1 / K of the predictions are right.
        rate: the share of wrong labels.
        caution: the power.

    >>> [round(deserved_belief(share, classes=10), 2) for share in (0.1, 0.4, 0.6, 0.7, 0.82)]
    [0.0, 0.01, 0.11, 0.33, 1.0]
    >>> [round(deserved_belief(share, classes=10, rate=0.6), 2) for share in (0.4, 0.6, 0.7)]
    [0.02, 0.47, 1.0]
    """
    right, wrong = _FULL_ODDS * (1 - rate), rate
    full = min(_FULL_BELIEF, _above_chance(right / (right + wrong), classes))
    return float(min(1.0, _above_chance(accuracy, classes) / full) ** caution)


def sharpening_power(accuracy: float, classes: int, highest: float) -> float:
    """Return the power that sharpens corrected labels, from 1 to `highest`, from an estimate of the accuracy.

    A soft label keeps part of a wrong label, and the model learns that part. So labels corrected by a model that is
    nearly always right are sharpened; those of a less accurate model stay soft.

    Args:
        accuracy: the estimated accuracy.
        classes: the number of classes K.
        highest: the power from an accuracy above chance of 0.9 on.

    >>> [round(sharpening_power(share, classes=10, highest=2.0), 2) for share in (0.5, 0.7, 0.85, 0.91)]
    [1.0, 1.03, 1.4, 2.0]
    """
    return float(1 + (highest - 1) * min(1.0, _above_chance(accuracy, classes) / _FULL_SHARPNESS) ** 12)


def _above_chance(accuracy: float, classes: int) -> float:
    return max(0.0, (accuracy - 1 / classes) / (1 - 1 / classes))


def learnt_by_heart(before: float, after: float) -> float:
    """Return how strongly clients memorize labels, 0 to 1, from the agreement before and after local training.

    Some gain in agreement is normal. A gain beyond a fifth of the disagreements counts as memorization; it counts less
    if nearly all labels agree before training.

    Args:
        before: the share of samples whose label is predicted by a model that has not learnt from them.
        after: the same share in the last local epoch.

    >>> [round(learnt_by_heart(0.5, after), 2) for after in (0.5, 0.6, 0.8, 1.0)]
    [0.0, 0.0, 0.5, 1.0]
    """
    gained = (after - before) / max(1 - before, 1e-3)
    needed = min(1.0, (1 - before) / _FULL_DISAGREEMENT)
    return needed * min(1.0, max(0.0, (gained - _NO_GAP) / (1 - _NO_GAP)))


def scale_rate(matrix: Tensor, rate: float) -> Tensor:
    """Return Q scaled to this rate of wrong labels, with the same pattern.

    Args:
        matrix: (K, K) Q.
        rate: the mean rate over classes.

    >>> scale_rate(torch.tensor([[0.9, 0.1], [0.1, 0.9]]), 0.3)
    tensor([[0.7000, 0.3000],
            [0.3000, 0.7000]])
    """
    current = float(1 - matrix.diagonal().mean())
    wrong = (matrix - matrix.diagonal().diag()) * (rate / max(current, 1e-3))  # (K, K)
    wrong = wrong * (_MAX_RATE / wrong.sum(dim=1, keepdim=True).clamp(min=_MAX_RATE))
    return wrong + (1 - wrong.sum(dim=1)).diag()


@dataclass(frozen=True)
class NoiseModel:
    """The noise model that the server broadcasts in `aux`, and its update from the sums of a round."""

    matrix: Tensor  # (K, K) Q, estimated from `counts`
    pattern: Tensor  # (K, K) distribution of the wrong labels of a predicted class over the others; rows sum to 1
    prior: Tensor  # (K,) the share of each label over all clients; zeros before the first round
    numbers: Tensor  # (11,) temperature, belief, gap, samples of the last round, rate, highest rate, accuracy, judge,
    # rate of held-out labels and its standard deviation, trust
    counts: Tensor  # (K, K) probable classes by label, summed over clients; earlier rounds count less; never broadcast
    confusion: Tensor  # (K, K) predicted classes by label, likewise

    @staticmethod
    def initial(classes: int) -> "NoiseModel":
        """Return the model before the first round, with a belief of 0."""
        numbers = torch.zeros(11)
        numbers[_HELD_OUT] = _UNKNOWN
        numbers[_TRUST] = 1.0
        numbers[_TEMPERATURE] = noise_fit.TEMPERATURES[-1]
        first = noise.symmetric(classes, _FIRST_RATE).float()
        none = torch.zeros(classes, classes)
        pattern = noise_posterior.flat_pattern(classes).float()
        return NoiseModel(first, pattern, torch.zeros(classes), numbers, none, none.clone())

    @staticmethod
    def read(aux: Tensors, kept: Tensors | None = None) -> "NoiseModel":
        """Return the model stored in a server state; at a client, without the counts of earlier rounds.

        Args:
            aux: of the server state.
            kept: of the server state; None or empty at a client.
        """
        stored = {name: aux[_PREFIX + name] for name in _NAMES}
        none = torch.zeros_like(stored["matrix"])
        return NoiseModel(**stored, **{name: (kept or {}).get(_PREFIX + name, none) for name in _KEPT})

    def tensors(self) -> Tensors:
        """Return the entries of `aux` for this model."""
        return {_PREFIX + name: getattr(self, name) for name in _NAMES}

    def kept(self) -> Tensors:
        """Return the entries of `kept` for this model."""
        return {_PREFIX + name: getattr(self, name) for name in _KEPT}

    @staticmethod
    def zero_sums(classes: int) -> Tensors:
        """Return zeros for all sums that clients send."""
        judges, temperatures, rates = len(JUDGES), len(noise_fit.TEMPERATURES), len(noise_fit.RATES)
        return {
            "fit/temperature": torch.zeros(judges, temperatures),
            "fit/rate": torch.zeros(judges, temperatures, rates),
            "fit/confidence": torch.zeros(judges, temperatures),
            "fit/sure": torch.zeros(judges, temperatures),
            "fit/counts": torch.zeros(classes, classes),
            "fit/confusion": torch.zeros(classes, classes),
            "fit/labels": torch.zeros(classes),
            "fit/clients": torch.zeros(1),
            "fit/agreement": torch.zeros(4),  # agreeing and all samples before training; the same in the last epoch
        }

    @property
    def belief(self) -> float:
        """The belief in predictions, 0 to 1; see `deserved_belief`. It is less if held-out agreement has fallen."""
        return float(self.numbers[_BELIEF] * self.numbers[_TRUST])

    @property
    def accuracy(self) -> float:
        """The estimated accuracy of predictions: their mean confidence at the temperature that fits the labels."""
        return float(self.numbers[_ACCURACY])

    @property
    def classifier_weight(self) -> float:
        """The weight of the classifier in the judgement of a sample, one of `JUDGES`; the centroids have the rest."""
        return JUDGES[int(self.numbers[_JUDGE].nan_to_num().round().clamp(0, len(JUDGES) - 1))]

    @property
    def samples(self) -> float:
        """The number of samples that the last round was trained on."""
        return float(self.numbers[_WEIGHT])

    @property
    def correction(self) -> float:
        """The share of a label that is corrected, 0 to 1; it is smaller if few labels are surely wrong."""
        return self.belief * min(1.0, self.least_rate / _FULL_NEED)

    @property
    def settled(self) -> float:
        """The degree to which the server shortens its steps, 0 to 1: the belief, unless labels are surely right."""
        return self.correction if self._knows_held_out else self.belief

    @property
    def resistance(self) -> float:
        """The strength of the regularization against memorization, 0 to 1."""
        noise_seen = min(1.0, max(0.0, (self.least_rate - _SOME_NOISE) / _FULL_NEED))
        return float(self.numbers[_GAP]) * (1 - self.belief * (1 - noise_seen))

    @property
    def rate(self) -> float:
        """The rate of wrong labels that held-out labels show.

        Without held-out labels, the highest one since the model is believed: memorization hides wrong labels later on.
        """
        if self._knows_held_out:
            return float(self.numbers[_HELD_OUT])
        return max(float(self.numbers[_HIGHEST]), float(1 - self.matrix.diagonal().mean()))

    @property
    def least_rate(self) -> float:
        """The rate of wrong labels, less the standard deviation if it was fitted to held-out labels."""
        return max(0.0, self.rate - float(self.numbers[_DEVIATION])) if self._knows_held_out else self.rate

    @property
    def noise_matrix(self) -> Tensor:
        """Q (K, K) at the rate of held-out labels; without these, at least at the highest rate so far."""
        if self._knows_held_out:
            return scale_rate(self.matrix, max(self.rate, _LEAST_RATE))
        highest = float(self.numbers[_HIGHEST])
        return scale_rate(self.matrix, highest) if highest > float(1 - self.matrix.diagonal().mean()) else self.matrix

    @property
    def _knows_held_out(self) -> bool:
        return float(self.numbers[_HELD_OUT]) >= 0

    def with_held_out(self, estimate: HeldOutEstimate) -> "NoiseModel":
        """Return the model with what held-out labels show."""
        numbers = self.numbers.clone()
        numbers[_HELD_OUT] = _UNKNOWN if estimate.rate is None else estimate.rate
        numbers[_DEVIATION], numbers[_TRUST] = estimate.deviation, estimate.trust
        return replace(self, numbers=numbers)

    def posterior(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        """Return P(class | image, label) of samples by Bayes' rule, (n, K) float64.

        Args:
            log_probs: (n, K) log-probabilities by a judge that has not learnt these labels.
            labels: (n,) as given.
        """
        probabilities = noise_fit.tempered(log_probs, float(self.numbers[_TEMPERATURE]))
        return noise_posterior.label_posterior(labels, probabilities, self.noise_matrix)

    def evidence(self, judges: Sequence[Tensor], labels: Tensor) -> Tensors:
        """Return the evidence of a client's samples about the noise, as sums in float32.

        Args:
            judges: log-probabilities (n, K) by each of `JUDGES`, none of which has learnt these labels.
            labels: (n,) as given.
        """
        sums = {name: value.double().to(labels.device) for name, value in self.zero_sums(len(self.prior)).items()}
        size = max(1, _CHUNK // (len(noise_fit.TEMPERATURES) * len(self.prior)))
        for place, log_probs in enumerate(judges):
            for part, given in zip(log_probs.split(size), labels.split(size), strict=True):
                probabilities = noise_fit.at_all_temperatures(part)  # (T, size, K)
                sums["fit/temperature"][place] += noise_fit.temperature_likelihoods(
                    probabilities, given, self.noise_matrix
                )
                sums["fit/rate"][place] += noise_fit.rate_likelihoods(probabilities, given, self.pattern)
                sums["fit/confidence"][place] += noise_fit.confidences(probabilities)
                sums["fit/sure"][place] += noise_fit.sure_samples(probabilities)
        chosen = judges[JUDGES.index(self.classifier_weight)]
        probabilities = noise_fit.tempered(chosen, float(self.numbers[_TEMPERATURE]))
        posterior = noise_posterior.label_posterior(labels, probabilities, self.matrix)  # (n, K)
        sums["fit/counts"].T.index_add_(0, labels, posterior)  # class by label
        sums["fit/confusion"].index_put_((chosen.argmax(dim=1), labels), posterior.new_ones(()), accumulate=True)
        return {name: value.float() for name, value in sums.items()}

    def check(self, sums: Tensors, samples: float, clients: int) -> str | None:
        """Return why these sums cannot be the evidence of this many samples, or None.

        `rofl.core.likelihood_bounds` has the bounds of likelihoods. A client that sends false numbers within these
        limits still has the influence of its samples; see docs/security.md.

        Args:
            sums: the sums of one client, or of several, that received this noise model.
            samples: the number of samples that they declared.
            clients: their number.
        """
        if not abs(float(sums["fit/clients"]) - clients) <= _ROUNDING * clients + _SLACK:
            return f"it counts {float(sums['fit/clients']):.6g} of {clients} clients"
        slack = 0.01 * samples + 1  # sums are rounded before they are sent
        for name in ("fit/counts", "fit/confusion", "fit/labels"):
            if not float(sums[name].min()) >= -slack or not float(sums[name].sum()) <= samples + slack:
                return f"it counts {float(sums[name].sum()):.6g} of {samples:.6g} samples as {name!r}"
        before, judged, after, trained = sums["fit/agreement"].tolist()
        if not -slack <= before <= judged + slack <= samples + 2 * slack:
            return f"it counts {before:.6g} of {judged:.6g} samples as right before training"
        if not -slack <= after <= trained + slack <= samples + 2 * slack:
            return f"it counts {after:.6g} of {trained:.6g} samples as right after training"
        rows = {
            "fit/temperature": matrix_bounds(self.noise_matrix),
            "fit/confidence": (1 / len(self.prior), 1.0),
            "fit/sure": (0.0, 1.0),
        }
        for name, (low, high) in rows.items():
            error = _ROUNDING * (sums[name].abs() + judged) + _SLACK  # (judges, temperatures)
            if not bool(((sums[name] >= low * judged - error) & (sums[name] <= high * judged + error)).all()):
                return f"it has a number in {name!r} that {judged:.6g} samples cannot give"
        rises = sums["fit/sure"].diff(dim=1)
        if bool((rises > _ROUNDING * judged + 2 * _SLACK).any()):
            return "it is sure of more samples at a higher temperature"
        if not are_possible(sums["fit/rate"], judged, self.pattern, _ROUNDING, _SLACK):
            return f"it has a number in 'fit/rate' that {judged:.6g} samples cannot give"
        return None

    def updated(self, sums: Tensors, samples: float, caution: float = 6.0, clients: int = 0) -> "NoiseModel":
        """Return the model after a round.

        If few of the clients take part in a round, its confusions are few, too. So those of earlier rounds are added,
        with a weight that leaves as many as all clients have.

        Args:
            sums: the sums over the clients of the round.
            samples: the number of samples that the round was trained on.
            caution: the power of `deserved_belief`.
            clients: the number of all clients; 0 if all take part.
        """
        sums = {name: value.nan_to_num() for name, value in sums.items()}  # noise for privacy may give any value
        numbers = self.numbers.clone()
        numbers[_WEIGHT] = samples
        labels = sums["fit/labels"].clamp(min=0)
        prior = labels / labels.sum().clamp(min=1)
        before, judged, after, trained = sums["fit/agreement"].clamp(min=0).tolist()
        counts, confusion = (sums[name].double().clamp(min=0) for name in ("fit/counts", "fit/confusion"))
        if judged < 1 or float(counts.sum()) < 1:  # the first round, which has no predictions
            return replace(self, prior=prior, numbers=numbers)
        share = max(0.0, 1 - float(sums["fit/clients"]) / clients) if clients else 0.0  # of earlier rounds
        counts, confusion = share * self.counts + counts, share * self.confusion + confusion
        judge = int(sums["fit/rate"].flatten(1).amax(dim=1).argmax())  # the judge that explains the given labels best
        place = noise_fit.best_temperature(sums["fit/temperature"][judge])
        doubt = _DOUBT * min(1.0, judged / _MANY)
        found, _ = noise_fit.expected_rate(sums["fit/rate"][judge], sums["fit/sure"][judge], judged, doubt)
        found = min(found, noise_fit.distinct_rate(self.pattern))
        smooth = float(torch.lerp(torch.tensor(found), numbers[_RATE], _RATE_MOMENTUM)) if numbers[_RATE] else found
        numbers[_JUDGE] = judge
        numbers[_TEMPERATURE] = noise_fit.TEMPERATURES[place]
        wrong = self.rate if self._knows_held_out else max(smooth, float(numbers[_HIGHEST]))
        wrong = min(wrong, noise_fit.distinct_rate(self.pattern))
        numbers[_ACCURACY] = min(1.0, max(0.0, float(sums["fit/confidence"][judge, place]) / judged))
        deserved = deserved_belief(float(numbers[_ACCURACY]), len(prior), wrong, caution)
        numbers[_BELIEF] = max(deserved, _BELIEF_DECAY * float(self.numbers[_BELIEF]))
        numbers[_GAP] = learnt_by_heart(min(1.0, before / judged), min(1.0, after / max(trained, 1)))
        numbers[_RATE] = smooth
        known = float(numbers[_BELIEF]) >= _RATE_BELIEF
        numbers[_HIGHEST] = max(float(numbers[_HIGHEST]), smooth) if known else smooth
        rate = float(1 - counts.diagonal().sum() / counts.sum())
        flat = noise.symmetric(len(prior), min(max(rate, 1e-3), _MAX_RATE))
        matrix = torch.lerp(noise_posterior.noise_matrix(counts, _MAX_RATE), flat, _MIX)
        dtype = self.matrix.dtype
        pattern = noise_posterior.noise_pattern(confusion).to(dtype)
        return NoiseModel(matrix.to(dtype), pattern, prior, numbers, counts.to(dtype), confusion.to(dtype))
