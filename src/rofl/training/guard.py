"""The guard: signs that training makes the model worse, found without true labels.

Every sign is a function of the round records, which hold sums only, so a resumed run and a federation find the same.
`run_monitor.py` decides how to react.
"""

from collections.abc import Sequence
from math import sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict
from torch import Tensor

from rofl.training.held_out import HeldOut, count_agreement

Sign = Literal[
    "vanished class",
    "falling agreement",
    "lost confidence",
    "nothing learnt",
    "no update",
    "not finite",
    "rolled back",
    "set aside",
]

BLAME: tuple[Sign, ...] = ("rolled back", "set aside")  # events that may name clients
WINDOW = 3  # evaluations that must agree, since a single one is noisy
_RARE = 0.1  # relative to its share among the labels: a class that is predicted more rarely has vanished
_COMMON = 0.5  # relative to that share: a class that is predicted this often was present
_FEWEST = 10  # samples with the label; with fewer, zero predictions may be chance
_DEVIATIONS = 2.0  # standard errors that count as significant
_SMALLEST_FALL = 0.03  # smallest drop of agreement that is reported
_LOST = 0.5  # relative to the best share of confident samples
_CLIFF, _CLIFF_DEVIATIONS = 0.15, 4.0  # drop of agreement in one round that honest clients do not cause
_COLLAPSE = 0.4  # the same for the overlap of class shares


class GuardEvent(BaseModel):
    """A sign that training makes the model worse, and the guard's reaction.

    Attributes:
        sign: its kind.
        round: the round after which it was seen.
        message: one or two sentences for the user.
        classes: the indices of the vanished classes.
        acted: whether the guard changed the training.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    sign: Sign
    round: int
    message: str
    classes: list[int] = []
    acted: bool = False


def vanished(recent: Sequence[HeldOut]) -> list[int]:
    """Return the classes that occur as labels but are hardly ever predicted in any of these evaluations.

    >>> vanished([HeldOut(predicted=[79, 1], labelled=[40, 40])])
    [1]
    """
    return [one for one in range(_classes(recent)) if all(_ratio(each, one, inf=True) < _RARE for each in recent)]


def present(recent: Sequence[HeldOut]) -> list[int]:
    """Return the classes that are predicted about as often as they occur as labels, in all of these evaluations."""
    return [one for one in range(_classes(recent)) if all(_ratio(each, one) >= _COMMON for each in recent)]


def falls_short(agreement: float, best: float, samples: int) -> bool:
    """Return whether an agreement is significantly below an earlier one.

    Args:
        agreement: the share of held-out samples whose prediction equals the label.
        best: the same for the best rounds.
        samples: the number of held-out samples.
    """
    error = sqrt(2 * best * (1 - best) / max(samples, 1))
    return best - agreement > max(_SMALLEST_FALL, _DEVIATIONS * error)


def describe_drop(newest: HeldOut, good: Sequence[HeldOut]) -> str:
    """Return how far an evaluation is below those of the last good rounds, as the end of a sentence.

    Args:
        newest: the evaluation of the round.
        good: the evaluations of the good rounds before it.

    Returns:
        The text, or "" if there is no sharp drop, or nothing to compare with.
    """
    known = [each.agreement for each in good if each.agreement is not None]
    if known and newest.agreement is not None:
        best = max(known)
        error = sqrt(2 * best * (1 - best) / max(newest.samples, 1))
        if best - newest.agreement > max(_CLIFF, _CLIFF_DEVIATIONS * error):
            return f"agreement with held-out labels fell from {100 * best:.1f} to {100 * newest.agreement:.1f} %"
    before = max((_shared_classes(each) for each in good), default=0.0)
    if before - _shared_classes(newest) > _COLLAPSE:
        return "the model predicts a few classes for nearly all samples"
    return ""


def _shared_classes(counts: HeldOut) -> float:
    """Return the overlap of the class shares of predictions and labels: 1 if they are the same."""
    predicted, labelled = max(sum(counts.predicted), 1), max(sum(counts.labelled), 1)
    shares = zip(counts.predicted, counts.labelled, strict=False)
    return sum(min(one / predicted, other / labelled) for one, other in shares)


def is_chance(agreement: float, majority: float, samples: int) -> bool:
    """Return whether an agreement is no better than always predicting the most frequent label.

    Args:
        agreement: the share of samples that are predicted as labelled.
        majority: the share of the most frequent label.
        samples: the number of samples.
    """
    return agreement <= majority + _DEVIATIONS * sqrt(majority * (1 - majority) / max(samples, 1))


def lost_confidence(confident: float, best: float) -> bool:
    """Return whether the share of confident samples has collapsed compared with its best."""
    return confident < _LOST * best


def judge_model(logits: Tensor, labels: Tensor, classes: Sequence[str], index: int) -> list[GuardEvent]:
    """Return the signs in the saved model's predictions on all training samples.

    Args:
        logits: (N, K) of the saved model.
        labels: (N,) as given.
        classes: the names of the classes.
        index: the round of the model.
    """
    if not bool(logits.isfinite().all()):
        message = "The saved model's predictions are not finite numbers: training diverged."
        return [GuardEvent(sign="not finite", round=index, message=f"{message} Try a smaller method.lr.")]
    return judge_counts(count_agreement(logits, labels), classes, index)


def judge_counts(counts: HeldOut, classes: Sequence[str], index: int) -> list[GuardEvent]:
    """Return the signs in counts over training samples.

    Args:
        counts: of the saved model's predictions, and of the labels.
        classes: the names of the classes.
        index: the round of the model.
    """
    events = []
    if counts.agreement is not None and is_chance(counts.agreement, counts.majority, counts.samples):
        message = f"The saved model has learnt nothing: {_against_majority(counts.agreement, counts.majority)}."
        events.append(GuardEvent(sign="nothing learnt", round=index, message=message))
    gone = vanished([counts])
    if gone:
        message = f"The saved model hardly ever predicts {class_list(gone, classes)}: {_counts_text(gone, counts)}."
        events.append(GuardEvent(sign="vanished class", round=index, message=message, classes=gone))
    return events


def class_list(numbers: Sequence[int], classes: Sequence[str]) -> str:
    """Return class names for a sentence, shortened if there are many.

    >>> class_list([1], ["cat", "dog"]), class_list([0, 1], [])
    ('the class dog', 'the classes 0, 1')
    """
    names = [classes[number] if number < len(classes) else str(number) for number in numbers]
    more = f" and {len(names) - 5} more" if len(names) > 6 else ""
    return f"the class{'es' if len(names) > 1 else ''} {', '.join(names[:5] if more else names)}{more}"


def describe_vanished(gone: Sequence[int], classes: Sequence[str], newest: HeldOut, index: int) -> str:
    """Return a sentence about classes that have vanished.

    Args:
        gone: the classes, by number.
        classes: the names of all classes.
        newest: the counts of the last evaluation.
        index: its round.
    """
    return f"In round {index} the model hardly ever predicts {class_list(gone, classes)}: {_counts_text(gone, newest)}."


def describe_chance(agreement: float, majority: float, index: int) -> str:
    """Return a sentence about a model that has learnt nothing.

    Args:
        agreement: the share of held-out samples that are predicted as labelled.
        majority: the share of the most frequent label.
        index: the round.
    """
    return f"By round {index} the model has learnt nothing: {_against_majority(agreement, majority)}."


def _against_majority(agreement: float, majority: float) -> str:
    chance = ", which may be chance" if agreement > majority else ""
    return (
        f"it agrees with {100 * agreement:.1f} % of the labels, and always predicting the most frequent one would "
        f"agree with {100 * majority:.1f} %{chance}"
    )


def _counts_text(gone: Sequence[int], counts: HeldOut) -> str:
    given = 100 * sum(counts.labelled[one] for one in gone) / max(sum(counts.labelled), 1)
    predicted = sum(counts.predicted[one] for one in gone)
    return f"{predicted} of {counts.samples} predictions, against {given:.1f} % of the labels"


def _classes(recent: Sequence[HeldOut]) -> int:
    return min((min(len(each.predicted), len(each.labelled)) for each in recent), default=0)


def _ratio(counts: HeldOut, one: int, inf: bool = False) -> float:
    """Return how often a class is predicted, relative to its share among the labels.

    Args:
        counts: of an evaluation.
        one: the class.
        inf: the result if too few samples have the label: infinity if True, else 0.
    """
    expected = counts.labelled[one] / max(sum(counts.labelled), 1) * counts.samples
    if expected < _FEWEST:
        return float("inf") if inf else 0.0
    return counts.predicted[one] / expected
