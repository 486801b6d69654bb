"""Evaluation of a model on the sites' held-out samples: each site's counts, its vote, and the sums over sites."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from rofl.federation.protocol import get_sums, put_sums
from rofl.federation.tensor_records import decode_class_counts, decode_count, get_tensors, put_tensors
from rofl.training.held_out import HeldOut

VOTE = "vote"  # the record of a site's opinion of a model, which is never masked
_FEWEST = 10  # held-out samples; with fewer a site has no opinion
_FAR = 0.15  # of the held-out samples
_DEVIATIONS = 2.0  # standard errors that are beyond chance
_EVEN = 0.5  # of the classes: where a site's labels are fewer, in effect, its own model naturally knows them better


@dataclass(frozen=True)
class SiteEvaluation:
    """Counts of a model's predictions on a site's held-out samples.

    Attributes:
        right: How many test samples are classified as they are labelled.
        tested: How many test samples there are.
        held_out: Predictions and labels by class, by which rounds are compared; None where the site sends none.
        objects: Whether the model is worse by far than the one that this site trained itself in the same round; None
            where it cannot or may not tell. It is no part of a sum: a site has one vote, also under masks.
    """

    right: int
    tested: int
    held_out: HeldOut | None = None
    objects: bool | None = None

    def is_plausible(self, samples: int) -> bool:
        """Return whether there are no more held-out samples than the declared ones; counts by class are judged by."""
        return self.held_out is None or self.held_out.samples <= samples

    def without_counts(self) -> "SiteEvaluation":
        """Return zeros in place of all counts, for a site that does not send them."""
        if self.held_out is None:
            return SiteEvaluation(0, 0)
        none = [0] * len(self.held_out.predicted)
        return SiteEvaluation(0, 0, HeldOut(predicted=none, labelled=none, agreed=0))

    def encode(self) -> RecordDict:
        """Return the counts as a message."""
        sums = {"right": self.right, "tested": self.tested}
        content = RecordDict() if self.objects is None else RecordDict({VOTE: ConfigRecord({"objects": self.objects})})
        if self.held_out is None or self.held_out.agreed is None:
            return put_sums(content, sums)
        tables = {"predicted": self.held_out.predicted, "labelled": self.held_out.labelled}
        content = put_sums(content, {**sums, "agreed": self.held_out.agreed})
        return put_tensors(content, tables={name: torch.tensor(counts) for name, counts in tables.items()})

    @classmethod
    def decode(cls, content: RecordDict, classes: int | None = None) -> "SiteEvaluation":
        """Return the counts of a message; a ValueError says what is wrong with them.

        Args:
            content: The message.
            classes: How many classes the model has; any number where None.
        """
        sums, objects = get_sums(content), get_vote(content)
        right, tested = decode_count(sums, "right"), decode_count(sums, "tested")
        if right > tested:
            raise ValueError(f"it counts {right} right answers of {tested}")
        if "agreed" not in sums:
            return cls(right, tested, objects=objects)
        (tables,) = get_tensors(content, "tables")
        predicted, labelled = (decode_class_counts(tables.get(name), classes) for name in ("predicted", "labelled"))
        agreed = decode_count(sums, "agreed")
        if not sum(predicted) == sum(labelled) >= agreed or len(predicted) != len(labelled):
            raise ValueError("its counts by class do not fit together")
        return cls(right, tested, HeldOut(predicted=predicted, labelled=labelled, agreed=agreed), objects)


def get_vote(content: RecordDict) -> bool | None:
    """Return whether a site objects to a model, as its answer says in the clear; None where it does not say."""
    record = content.get(VOTE)
    objects = record.get("objects") if isinstance(record, ConfigRecord) else None
    return objects if isinstance(objects, bool) else None


def pooled_accuracy(evaluations: Iterable[SiteEvaluation]) -> float | None:
    """Return the accuracy on all sites' held-out samples, in per cent; None where there is no sample.

    >>> pooled_accuracy([SiteEvaluation(1, 2), SiteEvaluation(8, 8)])
    90.0
    """
    counts = list(evaluations)
    tested = sum(each.tested for each in counts)
    return 100 * sum(each.right for each in counts) / tested if tested else None


def pooled_counts(evaluations: Iterable[SiteEvaluation]) -> HeldOut | None:
    """Return the sums of all sites' counts by class; None where no site sends any."""
    counts = [each.held_out for each in evaluations if each.held_out is not None]
    if not counts:
        return None
    return HeldOut(
        predicted=[sum(column) for column in zip(*(each.predicted for each in counts), strict=True)],
        labelled=[sum(column) for column in zip(*(each.labelled for each in counts), strict=True)],
        agreed=sum(each.agreed or 0 for each in counts),
    )


class OwnModel:
    """The evaluation of a client's best local model on its held-out samples.

    A bad site may drag the model down by as little as the bounds on sums allow, from the first round on, when nothing
    is known yet that a round could be compared with. But every honest site has a model of its own to compare with.
    """

    def __init__(self) -> None:
        self._best: Tensor | None = None  # (n,) which samples it predicts as labelled
        self._round = 0  # of which an opinion may be given, once
        self._given: dict[int, tuple[bytes, bool]] = {}  # by round: what was asked, and the opinion

    def learn(self, right: Tensor, index: int) -> None:
        """Take in the model that the client trained in a round.

        Args:
            right: (n,) which held-out samples it predicts as labelled.
            index: the round.
        """
        if self._best is None or index == 1 or int(right.sum()) > int(self._best.sum()):  # a run may begin anew
            self._best = right
        self._round = index

    def objects(self, right: Tensor, labelled: Sequence[int], index: int) -> bool | None:
        """Return whether a round's model is worse by far; None where the client did not train in it, or cannot tell.

        It answers once in a round, whatever models are sent, also if the round is trained again: a coordinator that
        was killed asks for the same model again, and gets the same answer.

        Args:
            right: (n,) which held-out samples the round's model predicts as labelled.
            labelled: (K,) how often each class is given among them.
            index: the round.
        """
        asked = right.numpy().tobytes()
        if index in self._given:
            before, opinion = self._given[index]
            return opinion if asked == before else None
        trained, self._round = self._round == index, 0
        if not trained or self._best is None or len(right) < _FEWEST or not _is_even(labelled):
            return None
        lost, won = int((self._best & ~right).sum()), int((right & ~self._best).sum())
        self._given[index] = asked, lost - won > max(_FAR * len(right), _DEVIATIONS * sqrt(lost + won))
        return self._given[index][1]


def _is_even(labelled: Sequence[int]) -> bool:
    """Return whether labels are spread over the classes: by their effective number, 1 / sum of squared shares."""
    total = max(sum(labelled), 1)
    return 1 / max(sum((count / total) ** 2 for count in labelled), 1e-12) >= _EVEN * len(labelled)
