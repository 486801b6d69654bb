"""How many labels are wrong, and in which way, as a model sees it: no true label is needed.

Q denotes the noise matrix (K, K), Q[i, j] = P(label = j | class = i). It is estimated from sums over samples, in two
passes, since the second one counts the samples that a model is surer of than on average; the sums of several sites may
be added before.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rofl.core.noise_posterior import noise_matrix
from rofl.core.serialization import parse_json

_ROUNDING = 1e-9  # of a mean, which must not come out below all samples
_ROW_SUM = 1e-6  # by which the sum of a row may differ from 1
_COLDEST, _HOTTEST = 0.1, 64.0  # temperatures


def noise_ratio(flagged: Tensor) -> float:
    """Return the share of labels that are flagged, of a mask (n,); 0 for no samples.

    >>> noise_ratio(torch.tensor([True, False, False, False]))
    0.25
    """
    return float(flagged.double().mean()) if len(flagged) else 0.0


def noise_interval(flagged: Tensor, score: Tensor, doubt: Tensor) -> tuple[float, float]:
    """Return bounds of the share of wrong labels among n samples.

    Three estimates differ in what they take for noise: the share that is flagged, the mean score, and the mean of what
    the model by itself leaves to other classes than the label's. The last is high for a model that is unsure of many
    samples, and the first two are low for one that has learnt wrong labels by heart. The bounds are the lowest of the
    first two and the highest of all, each with 1.96 standard deviations of the number of wrong labels and, as in the
    rule of three, three samples more.

    Args:
        flagged: (n,) whether another class is more probable than the label.
        score: (n,) the probability that the label is wrong.
        doubt: (n,) 1 - the model's probability of the label.

    >>> clean = torch.zeros(100)
    >>> noise_interval(clean.bool(), clean, clean)
    (0.0, 0.03)
    """
    count = len(score)
    if not count:
        return 0.0, 1.0
    shares = float(flagged.double().mean()), float(score.double().mean())
    deviation = float((score.double() * (1 - score.double())).sum()) ** 0.5
    margin = (1.96 * deviation + 3) / count
    return max(0.0, min(shares) - margin), min(1.0, max(*shares, float(doubt.double().mean())) + margin)


def scores_are_unsure(expected: float, unflagged: float) -> bool:
    """Return whether a model is too unsure to tell how many labels are wrong.

    A model that has learnt nothing is unsure of every label and flags few of them. Its scores then add up to many wrong
    labels, whether there are any or not.

    Args:
        expected: the sum of the scores of the labels that are not flagged, or their share of all.
        unflagged: the number of these labels, or their share.

    >>> scores_are_unsure(4, 400), scores_are_unsure(300, 400)
    (False, True)
    """
    return 3 * expected >= unflagged > 0


def interval_text(interval: Sequence[float]) -> str:
    """Return bounds of a share for people.

    >>> interval_text((0.1, 0.25)), interval_text((0.0, 0.03))
    ('10 to 25 %', 'up to 3 %')
    """
    low, high = (100 * bound for bound in interval)
    return f"up to {math.ceil(high)} %" if low < 0.5 else f"{math.floor(low)} to {math.ceil(high)} %"


def transition_counts(given: Tensor, suggested: Tensor, classes: int) -> Tensor:
    """Count how often class i, by the model, is labelled j.

    Counts of several clients may be added.

    Args:
        given: (n,) labels.
        suggested: (n,) classes by the model.
        classes: K.

    Returns:
        (K, K) counts.

    >>> transition_counts(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), classes=2)
    tensor([[1, 1],
            [0, 1]])
    """
    return torch.bincount(suggested * classes + given, minlength=classes * classes).view(classes, classes)


def discount_memorized(matrix: Tensor, learnt: float) -> Tensor:
    """Return Q for a model that has learnt part of the noise: what the label still says besides the model.

    Such a model knows the label already, and Bayes' rule would count it twice. So the weight of a right label,
    Q[j, j], is drawn geometrically to that of the most frequent wrong one, the largest other Q[i, j]: with learnt = 1
    a label says only which classes it may come from. Rows no longer sum to 1.

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
    ratio = torch.where((wrong > 0) & (wrong < right), wrong / right, 1.0)  # a label that is never wrong stays
    return off_diagonal + (right * ratio**learnt).diag()


@dataclass(frozen=True)
class PredictionSums:
    """What a model says of samples, compared with their labels."""

    counts: Tensor  # (K, K) samples by predicted class and label
    doubt: float  # the sum of 1 - max p

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return int(self.counts.sum())

    @property
    def disagreements(self) -> int:
        """How many labels differ from the prediction."""
        return self.samples - int(self.counts.diagonal().sum())

    @property
    def mean_doubt(self) -> float:
        """The mean of 1 - max p; 0 for no samples."""
        return self.doubt / max(self.samples, 1)

    @property
    def beyond_chance(self) -> bool:
        """Whether more labels agree with the predictions than by chance."""
        chance, samples = 1 / len(self.counts), max(self.samples, 1)
        deviation = (chance * (1 - chance) / samples) ** 0.5
        return bool(1 - self.disagreements / samples > chance + 2 * deviation)

    def __add__(self, other: "PredictionSums") -> "PredictionSums":
        """Return the sums over the samples of both."""
        return PredictionSums(self.counts + other.counts, self.doubt + other.doubt)


@dataclass(frozen=True)
class SureSums:
    """The samples that a model is no less sure of than on average."""

    samples: int
    disagreements: int  # how many of their labels differ from the prediction

    def __add__(self, other: "SureSums") -> "SureSums":
        """Return the sums over the samples of both."""
        return SureSums(self.samples + other.samples, self.disagreements + other.disagreements)


@dataclass(frozen=True)
class LabelNoise:
    """An estimate of how often which labels are wrong, and how much of that a model has learnt."""

    matrix: Tensor  # (K, K) float64, Q[i, j] = P(label = j | class = i)
    learnt: float  # 0 to 1, see `memorized_share`
    temperature: float | None = (
        None  # of the model's probabilities; None where no held-out samples were there to fit it
    )

    @property
    def rate(self) -> float:
        """The rate of wrong labels, the mean over classes."""
        return float(1 - self.matrix.diagonal().mean())

    def check(self, classes: int) -> None:
        """Raise a ValueError where this is no estimate for so many classes."""
        matrix = self.matrix
        if matrix.dtype != torch.float64 or matrix.shape != (classes, classes):
            raise ValueError(f"its noise matrix is not one of {classes} classes")
        if not bool(matrix.isfinite().all()) or bool((matrix < 0).any()):
            raise ValueError("its noise matrix holds a number that is no probability")
        if bool(((matrix.sum(dim=1) - 1).abs() > _ROW_SUM).any()):
            raise ValueError("a row of its noise matrix does not sum to 1")
        if not 0 <= self.learnt <= 1:
            raise ValueError("its share of learnt noise is not between 0 and 1")
        if self.temperature is not None and not _COLDEST <= self.temperature <= _HOTTEST:
            raise ValueError(f"its temperature is not between {_COLDEST} and {_HOTTEST}")

    def to_json(self) -> str:
        """Return it as JSON; `from_json` gives the same bits."""
        facts = {"matrix": self.matrix.tolist(), "learnt": self.learnt, "temperature": self.temperature}
        return json.dumps(facts) + "\n"

    @classmethod
    def from_json(cls, text: str, classes: int) -> "LabelNoise":
        """Return an estimate for so many classes from what `to_json` wrote; a ValueError says what else it is."""
        try:
            facts = parse_json(text)
            temperature = facts.get("temperature")  # none in files of rofl 0.2
            matrix = torch.tensor(facts["matrix"], dtype=torch.float64)
            noise = cls(matrix, float(facts["learnt"]), None if temperature is None else float(temperature))
        except (KeyError, TypeError, AttributeError, OverflowError, RuntimeError) as error:
            raise ValueError("it holds no noise matrix") from error
        noise.check(classes)
        return noise

    def discounted(self) -> Tensor:
        """Return Q (K, K) as `find_suspects` takes it, less what the model has learnt."""
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
        mean_doubt: of the first pass, over the samples of all sites.
    """
    confidence, predicted = probabilities.double().max(dim=1)
    sure = 1 - confidence <= mean_doubt + _ROUNDING  # (n,)
    return SureSums(int(sure.sum()), int((predicted != labels)[sure].sum()))


def memorized_share(labels: Tensor, probabilities: Tensor) -> float:
    """Return how much of the label noise a model has learnt, 0 to 1.

    A model that was trained on noisy labels without protection has learnt their distribution, and some of them by
    heart. Two shares measure it, and the smaller counts, since each alone may be high for another reason:

    - of the disagreements between labels and model, those that the model itself expects: the mean of 1 - max p,
      divided by the share of disagreements. Low for a model that is sure of its classes, whatever the labels are.
    - the rate of disagreements where the model is surer than on average, divided by the rate everywhere. A wrong
      label can be on any sample; a mistake of the model is on samples that it is unsure of.

    A model that agrees with the labels no more often than by chance has learnt nothing: 0.

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
    """Return Q (K, K) estimated from samples: predicted classes against labels, less what the model has memorized.

    Args:
        labels: (n,) given labels.
        probabilities: (n, K) of the model.
    """
    return _estimate(labels, probabilities).discounted()


def noise_of_sums(predictions: PredictionSums, sure: SureSums) -> LabelNoise:
    """Return the noise as the sums of both passes give it; how much the model has learnt: see `memorized_share`.

    Args:
        predictions: the sums of the first pass.
        sure: those of the second; not looked at unless `predictions.beyond_chance`.
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
