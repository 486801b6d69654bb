"""Estimation of the label noise from a model's predictions, without true labels.

Q denotes the noise matrix (K, K), Q[i, j] = P(label = j | class = i). It is estimated from sums over samples. There are
two passes, because the second counts the samples that the model is surer of than on average. The sums of several sites
can be added.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.noise_posterior import noise_matrix
from rofl.core.serialization import parse_json

_ROUNDING = 1e-9  # tolerance for a mean that rounding may put below all samples
_ROW_SUM = 1e-6  # tolerance for the sum of a row
_COLDEST, _HOTTEST = 0.1, 64.0  # temperatures


def noise_ratio(flagged: Tensor) -> float:
    """Return the share of flagged labels in a mask (n,); 0 if there are no samples.

    >>> noise_ratio(torch.tensor([True, False, False, False]))
    0.25
    """
    return float(flagged.double().mean()) if len(flagged) else 0.0


def noise_interval(flagged: Tensor, score: Tensor, doubt: Tensor, deviation: float = 0.0) -> tuple[float, float]:
    """Return bounds of the share of wrong labels among n samples.

    Three estimates are combined: the share of flagged labels, the mean score, and the mean doubt, which is the
    probability that the model gives to classes other than the label. The mean doubt is too high for a model that is
    unsure of many samples, and the first two are too low for a model that has memorized wrong labels. The lower bound
    is the smaller of the first two, the upper bound the largest of all three. Both are widened by 1.96 standard
    deviations of the number of wrong labels and, as in the rule of three, by three samples. The uncertainty of the rate
    over all clients is added in quadrature; once, not 1.96 times, since the scores of a client follow that rate only in
    part (decision 19).

    Args:
        flagged: (n,) whether another class is more probable than the label.
        score: (n,) the probability that the label is wrong.
        doubt: (n,) 1 - the model's probability of the label.
        deviation: the standard deviation of the rate of wrong labels over all clients; 0 if it was not fitted.

    >>> clean = torch.zeros(100)
    >>> noise_interval(clean.bool(), clean, clean)
    (0.0, 0.03)
    >>> noise_interval(clean.bool(), clean, clean, deviation=0.04)
    (0.0, 0.05)
    """
    count = len(score)
    if not count:
        return 0.0, 1.0
    shares = float(flagged.double().mean()), float(score.double().mean())
    spread = float((score.double() * (1 - score.double())).sum()) ** 0.5
    margin = math.hypot((1.96 * spread + 3) / count, deviation)
    return max(0.0, min(shares) - margin), min(1.0, max(*shares, float(doubt.double().mean())) + margin)


def scores_are_unsure(expected: float, unflagged: float) -> bool:
    """Return whether a model is too unsure to estimate the number of wrong labels.

    A model that has learnt nothing is unsure of every label and flags few of them. Its scores then add up to a large
    number, even if no label is wrong.

    Args:
        expected: the sum of the scores of the labels that are not flagged, or this sum as a share of all labels.
        unflagged: the number of these labels, or their share of all labels.

    >>> scores_are_unsure(4, 400), scores_are_unsure(300, 400)
    (False, True)
    """
    return 3 * expected >= unflagged > 0


def interval_text(interval: Sequence[float]) -> str:
    """Format the bounds of a share.

    >>> interval_text((0.1, 0.25)), interval_text((0.0, 0.03))
    ('10 to 25 %', 'up to 3 %')
    """
    low, high = (100 * bound for bound in interval)
    return f"up to {math.ceil(high)} %" if low < 0.5 else f"{math.floor(low)} to {math.ceil(high)} %"


def transition_counts(given: Tensor, suggested: Tensor, classes: int) -> Tensor:
    """Count how often samples that the model assigns to class i are labelled j.

    Counts of several clients can be added.

    Args:
        given: (n,) labels.
        suggested: (n,) classes by the model.
        classes: the number of classes K.

    Returns:
        (K, K) counts.

    >>> transition_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    return torch.bincount(suggested * classes + given, minlength=classes * classes).view(classes, classes)


def discount_memorized(matrix: Tensor, learnt: float) -> Tensor:
    """Return Q with less weight on the label, for a model that has memorized part of the noise.

    Such a model already knows the label, and Bayes' rule would count the label twice. So the weight of a right label,
    Q[j, j], is interpolated geometrically towards that of the most frequent wrong one, the largest other Q[i, j]. With
    learnt = 1, a label only says which classes it may come from. Rows no longer sum to 1.

    Args:
        matrix: (K, K) Q.
        learnt: 0 to 1, see `memorized_share`.

    >>> matrix = torch.tensor([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]])
    >>> discount_memorized(matrix, learnt=1.0).diagonal()
    tensor([0.2000, 0.2000, 0.1000], dtype=torch.float64)
    """
    right = matrix.double().diagonal()  # (K,)
    off_diagonal = matrix.double() - right.diag()
    wrong = off_diagonal.amax(dim=0)  # (K,)
    ratio = torch.where((wrong > 0) & (wrong < right), wrong / right, 1.0)  # a label that is never wrong is kept
    return off_diagonal + (right * ratio**learnt).diag()


@dataclass(frozen=True)
class PredictionSums:
    """Sums of the first pass: predictions compared with labels."""

    counts: Tensor  # (K, K) number of samples by predicted class and label
    doubt: float  # the sum of 1 - max p

    @property
    def samples(self) -> int:
        """The number of samples."""
        return int(self.counts.sum())

    @property
    def disagreements(self) -> int:
        """The number of labels that differ from the prediction."""
        return self.samples - int(self.counts.diagonal().sum())

    @property
    def mean_doubt(self) -> float:
        """The mean of 1 - max p; 0 if there are no samples."""
        return self.doubt / max(self.samples, 1)

    @property
    def beyond_chance(self) -> bool:
        """Whether significantly more labels agree with the predictions than by chance."""
        chance, samples = 1 / len(self.counts), max(self.samples, 1)
        deviation = (chance * (1 - chance) / samples) ** 0.5
        return bool(1 - self.disagreements / samples > chance + 2 * deviation)

    def __add__(self, other: "PredictionSums") -> "PredictionSums":
        """Return the sums over the samples of both operands."""
        return PredictionSums(self.counts + other.counts, self.doubt + other.doubt)


@dataclass(frozen=True)
class SureSums:
    """Sums of the second pass, over the samples that the model is at least as sure of as on average."""

    samples: int
    disagreements: int  # number of their labels that differ from the prediction

    def __add__(self, other: "SureSums") -> "SureSums":
        """Return the sums over the samples of both operands."""
        return SureSums(self.samples + other.samples, self.disagreements + other.disagreements)


@dataclass(frozen=True)
class LabelNoise:
    """An estimate of the label noise, and of the share of it that the model has memorized."""

    matrix: Tensor  # (K, K) float64, Q[i, j] = P(label = j | class = i)
    learnt: float  # 0 to 1, see `memorized_share`
    temperature: float | None = None  # of the model's probabilities; None if there were no held-out samples to fit it
    rate_deviation: float = 0.0  # standard deviation of the rate, fitted to held-out samples; 0 without them

    @property
    def rate(self) -> float:
        """The rate of wrong labels, averaged over classes."""
        return float(1 - self.matrix.diagonal().mean())

    def check(self, classes: int) -> None:
        """Raise a ValueError if this is not a valid estimate for this number of classes."""
        matrix = self.matrix
        if matrix.dtype != torch.float64 or matrix.shape != (classes, classes):
            raise ValueError(f"its noise matrix is not one of {classes} classes")
        if not bool(matrix.isfinite().all()) or bool((matrix < 0).any()):
            raise ValueError("its noise matrix holds a number that is not a probability")
        if bool(((matrix.sum(dim=1) - 1).abs() > _ROW_SUM).any()):
            raise ValueError("a row of its noise matrix does not sum to 1")
        if not 0 <= self.learnt <= 1:
            raise ValueError("its share of learnt noise is not between 0 and 1")
        if self.temperature is not None and not _COLDEST <= self.temperature <= _HOTTEST:
            raise ValueError(f"its temperature is not between {_COLDEST} and {_HOTTEST}")
        if not 0 <= self.rate_deviation <= 1:
            raise ValueError("the deviation of its rate is not between 0 and 1")

    def to_json(self) -> str:
        """Return the estimate as JSON; `from_json` restores the same bits."""
        facts = {"matrix": self.matrix.tolist(), "learnt": self.learnt, "temperature": self.temperature}
        return json.dumps(facts | {"rate_deviation": self.rate_deviation}) + "\n"

    @classmethod
    def from_json(cls, text: str, classes: int) -> "LabelNoise":
        """Return the estimate that `to_json` wrote; raise a ValueError if it is invalid for this number of classes."""
        try:
            facts = parse_json(text)
            temperature = facts.get("temperature")  # missing in files of rofl 0.2
            matrix = torch.tensor(facts["matrix"], dtype=torch.float64)
            deviation = float(facts.get("rate_deviation", 0.0))
            noise = cls(matrix, float(facts["learnt"]), None if temperature is None else float(temperature), deviation)
        except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
            raise ValueError("it holds no noise matrix") from error
        noise.check(classes)
        return noise

    def discounted(self) -> Tensor:
        """Return Q (K, K) for `find_suspects`, discounted by the share that the model has memorized."""
        return discount_memorized(self.matrix, self.learnt)


def sum_predictions(labels: Tensor, probabilities: Tensor) -> PredictionSums:
    """Return the sums of the first pass over samples.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
    """
    confidence, predicted = probabilities.double().max(dim=1)
    return PredictionSums(transition_counts(labels, predicted, probabilities.shape[1]), float((1 - confidence).sum()))


def sum_sure(labels: Tensor, probabilities: Tensor, mean_doubt: float) -> SureSums:
    """Return the sums of the second pass over samples.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
        mean_doubt: the mean doubt of the first pass, over the samples of all sites.
    """
    confidence, predicted = probabilities.double().max(dim=1)
    sure = 1 - confidence <= mean_doubt + _ROUNDING  # (n,)
    return SureSums(int(sure.sum()), int((predicted != labels)[sure].sum()))


def memorized_share(labels: Tensor, probabilities: Tensor) -> float:
    """Return the share of the label noise that a model has memorized, 0 to 1.

    A model that was trained on noisy labels without protection has learnt their distribution and memorized some of
    them. The result is the smaller of two shares, since each alone may be high for another reason:

    - The share of the disagreements between labels and model that the model itself expects: the mean of 1 - max p,
      divided by the rate of disagreements. It is low for a model that is sure of its classes, whatever the labels are.
    - The rate of disagreements where the model is surer than on average, divided by the overall rate. Wrong labels
      occur on any sample, whereas mistakes of the model occur on samples that it is unsure of.

    The result is 0 for a model that agrees with the labels no more often than by chance.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.

    >>> sure, doubtful = torch.tensor([[0.99, 0.01]]), torch.tensor([[0.8, 0.2]])
    >>> labels = torch.tensor([0, 0, 0, 1]).repeat(100)
    >>> [round(memorized_share(labels, model.expand(400, 2)), 2) for model in (sure, doubtful)]
    [0.04, 0.8]
    """
    return _estimate(labels, probabilities).learnt


def estimate_matrix(labels: Tensor, probabilities: Tensor) -> Tensor:
    """Return Q (K, K) estimated from predicted classes and labels, discounted by the memorized share.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
    """
    return _estimate(labels, probabilities).discounted()


def noise_of_sums(predictions: PredictionSums, sure: SureSums) -> LabelNoise:
    """Return the noise estimated from the sums of both passes; see `memorized_share` for its field `learnt`.

    Args:
        predictions: the sums of the first pass.
        sure: the sums of the second pass; used only if `predictions.beyond_chance`.
    """
    matrix = noise_matrix(predictions.counts)
    if not predictions.beyond_chance or not predictions.disagreements:
        return LabelNoise(matrix, 0.0)
    rate = predictions.disagreements / predictions.samples
    expected = predictions.mean_doubt / rate
    among_sure = sure.disagreements / max(sure.samples, 1) / rate
    return LabelNoise(matrix, min(expected, among_sure, 1.0))


def _estimate(labels: Tensor, probabilities: Tensor) -> LabelNoise:
    predictions = sum_predictions(labels, probabilities)
    return noise_of_sums(predictions, sum_sure(labels, probabilities, predictions.mean_doubt))
