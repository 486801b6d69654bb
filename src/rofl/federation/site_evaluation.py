"""Evaluation of a model on the sites' held-out samples: each site's counts, its vote, and the sums over sites."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import sqrt
from operator import add

import torch
from flwr.app import ConfigRecord, RecordDict
from torch import Tensor

from rofl.core.held_out_fit import GRID, HeldOutSums
from rofl.federation.protocol import get_sums, put_sums
from rofl.federation.tensor_records import (
    decode_class_counts,
    decode_count,
    from_steps,
    get_tensors,
    put_tensors,
    to_steps,
)
from rofl.training.held_out import HeldOut, add_noise_rate

VOTE = "vote"  # the record of a site's vote on a model, which is never masked
_FEWEST = 10  # held-out samples that a site needs to vote
_FAR = 0.15  # share of the held-out samples by which a model must be worse
_DEVIATIONS = 2.0  # standard errors by which a model must be worse
_EVEN = 0.5  # share of the classes: with fewer effective classes, a site's own model is better without any attack


@dataclass(frozen=True)
class SiteEvaluation:
    """Counts of a model's predictions on a site's held-out samples.

    Attributes:
        right: The number of test samples that are classified as labelled.
        tested: The number of test samples.
        held_out: Predictions and labels by class, which are used to compare rounds; None if the site sends none.
        noise: The log-likelihoods of the labels of these samples, to which the rate of wrong labels is fitted; None if
            the method does not use them.
        objects: The site's vote: whether the model is much worse than the best one that this site trained itself. None
            if the site cannot or may not vote. The vote is never masked, so that each site has exactly one.
    """

    right: int
    tested: int
    held_out: HeldOut | None = None
    noise: HeldOutSums | None = None
    objects: bool | None = None

    def is_plausible(self, samples: int, own_tests: bool = False) -> bool:
        """Return whether these counts are over at most as many samples as the site declared.

        Args:
            samples: The number of samples that the site declared.
            own_tests: Whether the site tests with samples of its own; if not, all sites test with the same ones, which
                may be more.
        """
        held_out = 0 if self.held_out is None else self.held_out.samples
        return held_out <= samples and (self.tested <= samples or not own_tests)

    def without_counts(self) -> "SiteEvaluation":
        """Return a copy with zeros for all counts and without a vote, for a site that does not send counts."""
        if self.held_out is None:
            return SiteEvaluation(0, 0)
        none = [0] * len(self.held_out.predicted)
        noise = None if self.noise is None else HeldOutSums(torch.zeros(GRID, dtype=torch.float64), 0)
        return SiteEvaluation(0, 0, HeldOut(predicted=none, labelled=none, agreed=0), noise)

    def encode(self) -> RecordDict:
        """Return the counts as a message."""
        sums = {"right": self.right, "tested": self.tested}
        content = RecordDict() if self.objects is None else RecordDict({VOTE: ConfigRecord({"objects": self.objects})})
        if self.held_out is None or self.held_out.agreed is None:
            return put_sums(content, sums)
        tables = {"predicted": self.held_out.predicted, "labelled": self.held_out.labelled}
        content = put_sums(content, {**sums, "agreed": self.held_out.agreed})
        tensors = {name: torch.tensor(counts) for name, counts in tables.items()}
        if self.noise is not None:
            tensors["likelihoods"] = to_steps(self.noise.table)
        return put_tensors(content, tables=tensors)

    @classmethod
    def decode(cls, content: RecordDict, classes: int | None = None, pattern: Tensor | None = None) -> "SiteEvaluation":
        """Return the counts of a message.

        Args:
            content: The message.
            classes: The number of classes of the model; any number if None.
            pattern: (K, K) the pattern of wrong labels that likelihoods are for; None if they are not used.

        Raises:
            ValueError: If counts are missing or impossible.
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
        counts, noise = HeldOut(predicted=predicted, labelled=labelled, agreed=agreed), None
        if pattern is not None:
            noise = HeldOutSums(from_steps(tables, "likelihoods", GRID), counts.samples)
            if not noise.is_possible(pattern):
                raise ValueError(f"its likelihoods are impossible for {noise.samples} labels")
        return cls(right, tested, counts, noise, objects)


def get_vote(content: RecordDict) -> bool | None:
    """Return a site's vote, whether it objects to a model, from its unmasked record; None if there is no vote."""
    record = content.get(VOTE)
    objects = record.get("objects") if isinstance(record, ConfigRecord) else None
    return objects if isinstance(objects, bool) else None


def pooled_accuracy(evaluations: Iterable[SiteEvaluation]) -> float | None:
    """Return the accuracy on all sites' held-out samples, in per cent; None if there is no sample.

    >>> pooled_accuracy([SiteEvaluation(1, 2), SiteEvaluation(8, 8)])
    90.0
    """
    counts = list(evaluations)
    tested = sum(each.tested for each in counts)
    return 100 * sum(each.right for each in counts) / tested if tested else None


def pooled_counts(evaluations: Sequence[SiteEvaluation]) -> HeldOut | None:
    """Return the sums of all sites' counts by class, with the fitted rate of wrong labels; None if none is sent."""
    counts = [each.held_out for each in evaluations if each.held_out is not None]
    if not counts:
        return None
    total = HeldOut(
        predicted=[sum(column) for column in zip(*(each.predicted for each in counts), strict=True)],
        labelled=[sum(column) for column in zip(*(each.labelled for each in counts), strict=True)],
        agreed=sum(each.agreed or 0 for each in counts),
    )
    noise = [each.noise for each in evaluations if each.noise is not None]
    return add_noise_rate(total, reduce(add, noise)) if noise else total


class OwnModel:
    """The evaluation of a client's best local model on its held-out samples.

    A bad site can degrade the model within the bounds on sums from the first round on, when there is no earlier round
    to compare with. Every honest site can still compare the model with its own.
    """

    def __init__(self) -> None:
        self._best: Tensor | None = None  # (n,) whether each sample is predicted as labelled
        self._round = 0  # the last trained round, for which there may be one vote
        self._given: dict[int, tuple[bytes, bool]] = {}  # round -> predictions that were judged, vote

    def learn(self, right: Tensor, index: int) -> None:
        """Record the evaluation of the model that the client trained in a round.

        Args:
            right: Whether the model predicts each held-out sample as labelled, (n,).
            index: The round.
        """
        if self._best is None or index == 1 or int(right.sum()) > int(self._best.sum()):  # a run may start again
            self._best = right
        self._round = index

    def objects(self, right: Tensor, labelled: Sequence[int], index: int) -> bool | None:
        """Return whether a round's model is much worse than the client's own; None if there is no vote.

        There is no vote if the client did not train in the round, or has too few or too uneven held-out samples. There
        is one vote per round, even if the round is repeated: the same predictions get the same vote, others get None.

        Args:
            right: Whether the round's model predicts each held-out sample as labelled, (n,).
            labelled: The number of these samples by given class, (K,).
            index: The round.
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
    """Return whether labels are spread over the classes, by the effective number 1 / sum of squared shares."""
    total = max(sum(labelled), 1)
    return 1 / max(sum((count / total) ** 2 for count in labelled), 1e-12) >= _EVEN * len(labelled)
