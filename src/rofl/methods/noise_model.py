"""What rofl-plus knows of the label noise: sums of the clients' evidence up, the fitted noise model down.

docs/decisions/0015-labels-by-bayes-rule.md and 0018-who-judges.md have the reasons and the measurements.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core import noise, noise_fit, noise_posterior
from rofl.core.tensors import Tensors

_FIRST_RATE = 0.2  # of the symmetric noise that the first fit starts from: from 0 it could never rise
_MAX_RATE = 0.8
_FULL_BELIEF = 0.8  # accuracy above chance, as estimated, from which the model is believed fully
_FULL_SHARPNESS = 0.9  # accuracy above chance, as estimated, from which corrected labels are sharpened fully
_FULL_NEED = 0.1  # rate of wrong labels from which labels are corrected fully
_SOME_NOISE = 0.1  # rate below which nothing is resisted: a model that still learns gains as much as one that memorizes
_FULL_DISAGREEMENT = (
    0.2  # share of labels that the model does not predict from which learning by heart is resisted fully
)
_NO_GAP = 0.2  # share of the disagreements that a client's training may remove before it counts as learning by heart
_CHUNK = 2**20  # probabilities at a time, at all temperatures
_MIX = 0.01  # of symmetric noise in Q, so that no label is impossible
_BELIEF_DECAY = 0.97  # per round: an estimate that falls for a while does not stop corrections at once
_RATE_MOMENTUM = 0.5  # of the rate over rounds
JUDGES = (1.0, 0.5, 0.0)  # how samples may be judged: the weight of the classifier; the rest is the centroids'
_NAMES = ("noise/matrix", "noise/pattern", "noise/prior", "noise/numbers")  # in `aux`
_TEMPERATURE, _BELIEF, _GAP, _WEIGHT, _RATE, _HIGHEST, _ACCURACY, _JUDGE = range(8)  # places in `noise/numbers`


def deserved_belief(accuracy: float, classes: int, caution: float = 6.0) -> float:
    """Return how far a model deserves to be believed, 0 to 1, by an estimate of its accuracy.

    It grows with the sixth power of the accuracy above chance, so that it is next to nothing at first: a model that is
    believed too early stops learning, and one that is believed too little learns as plain FedAvg does.

    Args:
        accuracy: as estimated, the mean confidence at the temperature that fits the given labels.
        classes: K; by chance, 1 / K of the predictions are right.
        caution: another power than the sixth.

    >>> [round(deserved_belief(share, classes=10), 2) for share in (0.1, 0.4, 0.6, 0.7, 0.82)]
    [0.0, 0.01, 0.11, 0.33, 1.0]
    """
    return float(min(1.0, _above_chance(accuracy, classes) / _FULL_BELIEF) ** caution)


def sharpening_power(accuracy: float, classes: int, highest: float) -> float:
    """Return the power that corrected labels are raised to, from 1 to the highest, by an estimate of the accuracy.

    Soft labels leave part of a wrong label in place, and the model learns it. So a model that is nearly always right
    corrects labels as good as wholly; one that is right on five of six is left as unsure as it is.

    Args:
        accuracy: as estimated.
        classes: K.
        highest: the power at an accuracy above chance of 0.9.

    >>> [round(sharpening_power(share, classes=10, highest=2.0), 2) for share in (0.5, 0.7, 0.85, 0.91)]
    [1.0, 1.03, 1.4, 2.0]
    """
    return float(1 + (highest - 1) * min(1.0, _above_chance(accuracy, classes) / _FULL_SHARPNESS) ** 12)


def _above_chance(accuracy: float, classes: int) -> float:
    return max(0.0, (accuracy - 1 / classes) / (1 - 1 / classes))


def learnt_by_heart(before: float, after: float) -> float:
    """Return how far clients learn labels by heart, 0 to 1, by their agreement before and after they train.

    A client that trains may well agree with more of its labels afterwards. What it gains beyond a fifth of its
    disagreements is taken for learning by heart, less so where nearly all labels agree anyway.

    Args:
        before: the share of samples whose label is predicted by a model that has not learnt from them.
        after: the same share in the last local epoch.

    >>> [round(learnt_by_heart(0.5, after), 2) for after in (0.5, 0.6, 0.8, 1.0)]
    [0.0, 0.0, 0.5, 1.0]
    """
    gained = (after - before) / max(1 - before, 1e-3)
    needed = min(1.0, (1 - before) / _FULL_DISAGREEMENT)
    return needed * min(1.0, max(0.0, (gained - _NO_GAP) / (1 - _NO_GAP)))


def raise_rate(matrix: Tensor, rate: float) -> Tensor:
    """Return Q with at least this rate of wrong labels, its pattern as it is.

    Args:
        matrix: (K, K) Q.
        rate: mean over classes; a higher one of Q stays.

    >>> raise_rate(torch.tensor([[0.9, 0.1], [0.1, 0.9]]), 0.3)
    tensor([[0.7000, 0.3000],
            [0.3000, 0.7000]])
    """
    current = float(1 - matrix.diagonal().mean())
    if rate <= current:
        return matrix
    wrong = (matrix - matrix.diagonal().diag()) * (rate / max(current, 1e-3))  # (K, K)
    wrong = wrong * (_MAX_RATE / wrong.sum(dim=1, keepdim=True).clamp(min=_MAX_RATE))
    return wrong + (1 - wrong.sum(dim=1)).diag()


@dataclass(frozen=True)
class NoiseModel:
    """The noise model that the server broadcasts in `aux`, and its update from the sums of a round."""

    matrix: Tensor  # (K, K) Q as the last rounds' labels give it
    pattern: Tensor  # (K, K) how the wrong labels of a predicted class are distributed over the others; rows sum to 1
    prior: Tensor  # (K,) the share of each label over all clients; zeros before the first round
    numbers: Tensor  # (8,) temperature, belief, gap, samples of the last round, rate, its highest, accuracy, judge

    @staticmethod
    def initial(classes: int) -> "NoiseModel":
        """Return the model before the first round, which believes no prediction."""
        numbers = torch.zeros(8)
        numbers[_TEMPERATURE] = noise_fit.TEMPERATURES[-1]
        first = noise.symmetric(classes, _FIRST_RATE).float()
        return NoiseModel(first, noise_posterior.flat_pattern(classes).float(), torch.zeros(classes), numbers)

    @staticmethod
    def read(aux: Tensors) -> "NoiseModel":
        """Return the model that a server state's `aux` holds."""
        return NoiseModel(*(aux[name] for name in _NAMES))

    def tensors(self) -> Tensors:
        """Return what `aux` holds."""
        return dict(zip(_NAMES, (self.matrix, self.pattern, self.prior, self.numbers), strict=True))

    @staticmethod
    def zero_sums(classes: int) -> Tensors:
        """Return the zeros of all that clients send."""
        judges, temperatures, rates = len(JUDGES), len(noise_fit.TEMPERATURES), len(noise_fit.RATES)
        return {
            "fit/temperature": torch.zeros(judges, temperatures),
            "fit/rate": torch.zeros(judges, temperatures, rates),
            "fit/confidence": torch.zeros(judges, temperatures),
            "fit/counts": torch.zeros(classes, classes),
            "fit/confusion": torch.zeros(classes, classes),
            "fit/labels": torch.zeros(classes),
            "fit/agreement": torch.zeros(4),  # agreed before training and of how many; in the last epoch, of how many
        }

    @property
    def belief(self) -> float:
        """How far predictions are believed, 0 to 1."""
        return float(self.numbers[_BELIEF])

    @property
    def accuracy(self) -> float:
        """The accuracy of predictions, as estimated: their mean confidence at the temperature that fits the labels."""
        return float(self.numbers[_ACCURACY])

    @property
    def classifier_weight(self) -> float:
        """The weight of the classifier in the judgement of a sample, one of `JUDGES`; the rest is the centroids'."""
        return JUDGES[int(self.numbers[_JUDGE].nan_to_num().round().clamp(0, len(JUDGES) - 1))]

    @property
    def samples(self) -> float:
        """The number of samples that the last round was trained with."""
        return float(self.numbers[_WEIGHT])

    @property
    def correction(self) -> float:
        """How far labels are corrected, 0 to 1: less where few of them are wrong."""
        return self.belief * min(1.0, self.rate / _FULL_NEED)

    @property
    def resistance(self) -> float:
        """How far learning by heart has to be resisted, 0 to 1."""
        noise_seen = min(1.0, max(0.0, (self.rate - _SOME_NOISE) / _FULL_NEED))
        return float(self.numbers[_GAP]) * (1 - self.belief * (1 - noise_seen))

    @property
    def rate(self) -> float:
        """The rate of wrong labels: the highest so far, since what is learnt by heart hides wrong labels later."""
        return max(float(self.numbers[_HIGHEST]), float(1 - self.matrix.diagonal().mean()))

    @property
    def noise_matrix(self) -> Tensor:
        """Q (K, K) at the highest rate of wrong labels so far."""
        return raise_rate(self.matrix, float(self.numbers[_HIGHEST]))

    def posterior(self, log_probs: Tensor, labels: Tensor) -> Tensor:
        """Return P(class | image, label) of samples by Bayes' rule, (n, K) float64.

        Args:
            log_probs: (n, K) by a judge that has not learnt these labels.
            labels: (n,) as given.
        """
        probabilities = noise_fit.tempered(log_probs, float(self.numbers[_TEMPERATURE]))
        return noise_posterior.label_posterior(labels, probabilities, self.noise_matrix)

    def evidence(self, judges: Sequence[Tensor], labels: Tensor) -> Tensors:
        """Return what a client's samples say about the noise, as sums in float32.

        Args:
            judges: log-probabilities (n, K) by each of `JUDGES`, which have not learnt these labels.
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
        chosen = judges[JUDGES.index(self.classifier_weight)]
        probabilities = noise_fit.tempered(chosen, float(self.numbers[_TEMPERATURE]))
        posterior = noise_posterior.label_posterior(labels, probabilities, self.matrix)  # (n, K)
        sums["fit/counts"].T.index_add_(0, labels, posterior)  # class by label
        sums["fit/confusion"].index_put_((chosen.argmax(dim=1), labels), posterior.new_ones(()), accumulate=True)
        return {name: value.float() for name, value in sums.items()}

    @staticmethod
    def check(sums: Tensors, samples: float) -> str | None:
        """Return what no evidence of so many samples can have, or None.

        A client that lies within these limits still has the weight of its samples; docs/security.md.

        Args:
            sums: of one client, or of several.
            samples: how many they declared.
        """
        slack = 0.01 * samples + 1  # sums travel rounded
        for name in ("fit/counts", "fit/confusion", "fit/labels"):
            if not float(sums[name].min()) >= -slack or not float(sums[name].sum()) <= samples + slack:
                return f"it counts {float(sums[name].sum()):.6g} of {samples:.6g} samples as {name!r}"
        before, judged, after, trained = sums["fit/agreement"].tolist()
        if not -slack <= before <= judged + slack <= samples + 2 * slack:
            return f"it counts {before:.6g} of {judged:.6g} samples as right before training"
        if not -slack <= after <= trained + slack <= samples + 2 * slack:
            return f"it counts {after:.6g} of {trained:.6g} samples as right after training"
        lowest = noise_fit.LOWEST * samples
        ranges = {"fit/temperature": (lowest, 0.0), "fit/rate": (lowest, 0.0), "fit/confidence": (0.0, samples)}
        for name, (low, high) in ranges.items():
            if not low - slack <= float(sums[name].min()) or not float(sums[name].max()) <= high + slack:
                return f"it has a number in {name!r} that {samples:.6g} samples cannot give"
        return None

    def updated(self, sums: Tensors, samples: float, caution: float = 6.0) -> "NoiseModel":
        """Return the model after a round.

        Args:
            sums: over the clients of the round.
            samples: the number of samples that the round was trained with.
            caution: the power of `deserved_belief`.
        """
        sums = {name: value.nan_to_num() for name, value in sums.items()}  # noise for privacy may leave anything
        numbers = self.numbers.clone()
        numbers[_WEIGHT] = samples
        labels = sums["fit/labels"].clamp(min=0)
        prior = labels / labels.sum().clamp(min=1)
        before, judged, after, trained = sums["fit/agreement"].clamp(min=0).tolist()
        counts, confusion = (sums[name].double().clamp(min=0) for name in ("fit/counts", "fit/confusion"))
        if judged < 1 or float(counts.sum()) < 1:  # the first round, in which nothing is predicted
            return NoiseModel(self.matrix, self.pattern, prior, numbers)
        judge = int(sums["fit/rate"].flatten(1).amax(dim=1).argmax())  # who explains the given labels best
        place = noise_fit.best_temperature(sums["fit/temperature"][judge])
        found = noise_fit.best_rate(sums["fit/rate"][judge])
        smooth = float(torch.lerp(torch.tensor(found), numbers[_RATE], _RATE_MOMENTUM)) if numbers[_RATE] else found
        numbers[_JUDGE] = judge
        numbers[_TEMPERATURE] = noise_fit.TEMPERATURES[place]
        numbers[_ACCURACY] = min(1.0, max(0.0, float(sums["fit/confidence"][judge, place]) / judged))
        deserved = deserved_belief(float(numbers[_ACCURACY]), len(prior), caution)
        numbers[_BELIEF] = max(deserved, _BELIEF_DECAY * self.belief)
        numbers[_GAP] = learnt_by_heart(min(1.0, before / judged), min(1.0, after / max(trained, 1)))
        numbers[_RATE] = smooth
        numbers[_HIGHEST] = max(float(numbers[_HIGHEST]), smooth)
        rate = float(1 - counts.diagonal().sum() / counts.sum())
        flat = noise.symmetric(len(prior), min(max(rate, 1e-3), _MAX_RATE))
        matrix = torch.lerp(noise_posterior.noise_matrix(counts, _MAX_RATE), flat, _MIX)
        dtype = self.matrix.dtype
        return NoiseModel(matrix.to(dtype), noise_posterior.noise_pattern(confusion).to(dtype), prior, numbers)
