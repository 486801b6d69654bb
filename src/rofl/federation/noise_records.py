"""Messages of the noise estimate: the sums of the sites, and the estimate over all sites.

After the last round each site sends sums in three passes. The first pass is `PredictionSums`. The second is `SureSums`
and `HeldOutSums`, which need the mean doubt and the noise pattern over all sites. The third is `ScoreSums`, which need
the fitted noise. Later requests carry the estimate. Both sides check the messages that they receive.
"""

import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from torch import Tensor

from rofl.audit.held_out_noise import DISCOUNTS, ScoreSums
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums
from rofl.audit.score_bounds import scores_are_possible
from rofl.core import noise_fit
from rofl.core.fixed_point import NUMBER_BITS
from rofl.core.held_out_fit import GRID, HeldOutSums
from rofl.core.noise_posterior import is_pattern
from rofl.federation.protocol import get_sums, put_sums
from rofl.federation.tensor_records import (
    decode_count,
    decode_table,
    from_steps,
    get_tensors,
    put_tensors,
    to_steps,
)

_STEP = 1 << NUMBER_BITS
_ROUNDING, _LEAST_RATE = 1e-9, 0.9e-3  # of a fitted noise
Sums = TypeVar("Sums", PredictionSums, HeldOutSums, ScoreSums)
MATRIX, FACTS = "noise matrix", "noise"  # records of a request, in addition to its model
DEVIATION = "rate deviation"  # a key of FACTS; older coordinators do not send it


def encode_predictions(sums: PredictionSums) -> RecordDict:
    """Return the first-pass sums as a message.

    Rounds the doubt up to a whole fixed-point step, so that the mean over all sites is not below every sample's doubt.
    """
    doubt = math.ceil(sums.doubt * _STEP) / _STEP
    content = put_sums(RecordDict(), {"samples": sums.samples, "doubt": doubt})
    return put_tensors(content, tables={"predicted": sums.counts})


def decode_predictions(content: RecordDict, classes: int, declared: int) -> PredictionSums:
    """Return the first-pass sums of a message, over one site or several.

    Args:
        content: The message.
        classes: The number of classes of the model.
        declared: The largest possible number of samples.

    Raises:
        ValueError: If the message holds no such sums, or impossible ones.
    """
    sums = get_sums(content)
    samples, doubt = decode_count(sums, "samples"), sums.get("doubt", math.nan)
    table = decode_table(content, "predicted", classes, samples)
    if samples > declared:
        raise ValueError(f"it counts {samples} samples, and {declared} were declared")
    if not 0 <= doubt <= samples:
        raise ValueError(f"its doubt is not between 0 and {samples}")
    return PredictionSums(table, doubt)


def encode_sure(sums: SureSums, held_out: HeldOutSums) -> RecordDict:
    """Return the second-pass sums as a message.

    Rounds likelihoods to whole fixed-point steps, so that their sum over sites is exact.
    """
    counts = {"sure": sums.samples, "disagreements": sums.disagreements, "held out": held_out.samples}
    return put_tensors(put_sums(RecordDict(), counts), tables={"likelihoods": to_steps(held_out.table)})


def decode_sure(content: RecordDict, declared: int, pattern: Tensor) -> tuple[SureSums, HeldOutSums]:
    """Return the second-pass sums of a message, over one site or several.

    Args:
        content: The message.
        declared: The number of samples that the sites declared.
        pattern: (K, K) the noise pattern of the request.

    Raises:
        ValueError: If the message holds no such sums, or impossible ones (`rofl.core.likelihood_bounds`).
    """
    sums = get_sums(content)
    sure, disagreements = decode_count(sums, "sure"), decode_count(sums, "disagreements")
    if not disagreements <= sure <= declared:
        raise ValueError(f"it counts {disagreements} disagreements of {sure} samples, and {declared} were declared")
    held_out = decode_count(sums, "held out")
    if held_out > declared:
        raise ValueError(f"it holds out {held_out} samples, and {declared} were declared")
    found = HeldOutSums(_get_steps(content, "likelihoods", GRID), held_out)
    if not found.is_possible(pattern):
        raise ValueError(f"its likelihoods are impossible for {held_out} labels")
    return SureSums(sure, disagreements), found


def no_held_out() -> HeldOutSums:
    """Return sums over zero held-out samples."""
    return HeldOutSums(torch.zeros(GRID, dtype=torch.float64), 0)


def encode_scores(sums: ScoreSums) -> RecordDict:
    """Return the third-pass sums as a message."""
    return put_tensors(put_sums(RecordDict(), {"samples": sums.samples}), tables={"scores": to_steps(sums.scores)})


def decode_scores(content: RecordDict, declared: int, noise: LabelNoise | None = None) -> ScoreSums:
    """Return the third-pass sums of a message, over one site or several.

    Args:
        content: The message.
        declared: The number of samples that the sites declared.
        noise: The noise of the request; None if it is unknown.

    Raises:
        ValueError: If the message holds no such sums, or impossible ones (`rofl.audit.score_bounds`).
    """
    samples = decode_count(get_sums(content), "samples")
    if samples > declared:
        raise ValueError(f"it counts {samples} samples, and {declared} were declared")
    scores = _get_steps(content, "scores", (len(DISCOUNTS),))
    if not scores_are_possible(scores, samples, noise):
        raise ValueError(f"its scores are impossible for {samples} samples")
    return ScoreSums(scores, samples)


def put_noise_facts(content: RecordDict, mean_doubt: float, pattern: Tensor) -> RecordDict:
    """Return a request for the second-pass sums; shares the arrays of `content`.

    Args:
        content: A request with the final model.
        mean_doubt: The mean doubt over the samples of all sites.
        pattern: The noise pattern over all sites, (K, K).
    """
    arrays = ArrayRecord({MATRIX: Array(pattern.numpy())})
    return RecordDict({**content, FACTS: ConfigRecord({"mean doubt": mean_doubt}), MATRIX: arrays})


def get_noise_facts(content: RecordDict, classes: int) -> tuple[float, Tensor]:
    """Return the mean doubt and the noise pattern of a request.

    Args:
        content: The request.
        classes: The number of classes of the model.

    Raises:
        ValueError: If they are missing or invalid.
    """
    pattern = LabelNoise(_get_matrix(content), learnt=0.0)
    pattern.check(classes)
    if not is_pattern(pattern.matrix):
        raise ValueError("its noise matrix is no pattern of wrong labels")
    return _share(content, "mean doubt"), pattern.matrix


def put_noise(content: RecordDict, noise: LabelNoise | None) -> RecordDict:
    """Return a request with the noise over all sites, if it is known; shares the arrays of `content`."""
    if noise is None:
        return content
    matrix = ArrayRecord({MATRIX: Array(noise.matrix.numpy())})
    facts = ConfigRecord({"learnt": noise.learnt})
    if noise.temperature is not None:
        facts["temperature"], facts[DEVIATION] = noise.temperature, noise.rate_deviation
    return RecordDict({**content, FACTS: facts, MATRIX: matrix})


def get_noise(content: RecordDict, classes: int) -> LabelNoise | None:
    """Return the noise over all sites in a request, or None if it has none.

    Args:
        content: The request.
        classes: The number of classes of the model.

    Raises:
        ValueError: If the noise is invalid. The text fits after "the coordinator's estimate was refused: ".
    """
    if content.get(MATRIX) is None:
        return None
    facts = content.get(FACTS)
    temperature = facts.get("temperature") if isinstance(facts, ConfigRecord) else None
    if temperature is not None and not isinstance(temperature, float):
        raise ValueError("its temperature is not a number")
    deviation = _share(content, DEVIATION) if isinstance(facts, ConfigRecord) and DEVIATION in facts else 0.0
    noise = LabelNoise(_get_matrix(content), _share(content, "learnt"), temperature, deviation)
    noise.check(classes)
    return noise


def get_fitted_noise(content: RecordDict, classes: int) -> LabelNoise:
    """Return the noise that a request for scores brings, which was fitted to held-out labels.

    It has one rate for all classes, and a pattern in which no label is impossible. A coordinator could otherwise choose
    a noise for which all scores are 0 but those of one class, and read the score of its only sample in the sum.

    Args:
        content: The request.
        classes: How many classes the model has.

    Raises:
        ValueError: If it brings none, or one that cannot have been fitted.
    """
    noise = get_noise(content, classes)
    if noise is None or noise.temperature is None or noise.learnt:
        raise ValueError("it brings no noise that was fitted to held-out labels")
    right, rate = noise.matrix.diagonal(), noise.rate
    if float(right.max() - right.min()) > _ROUNDING or not _LEAST_RATE <= rate <= max(noise_fit.RATES) + _ROUNDING:
        raise ValueError("its noise matrix has no rate that can be fitted")
    identity = torch.eye(classes, dtype=torch.float64)
    if not is_pattern((noise.matrix - identity) / rate + identity):
        raise ValueError("its noise matrix is no pattern of wrong labels")
    return noise


def add_sums(found: Sequence[Sums]) -> Sums | None:
    """Return the total over all sites, or None if no sample is counted."""
    return reduce(add, found) if any(each.samples for each in found) else None


def _get_steps(content: RecordDict, name: str, shape: tuple[int, ...]) -> Tensor:
    (tables,) = get_tensors(content, "tables")
    if list(tables) != [name]:
        raise ValueError(f"it has no {name}")
    return from_steps(tables, name, shape)


def _get_matrix(content: RecordDict) -> Tensor:
    arrays = content.get(MATRIX)
    if not isinstance(arrays, ArrayRecord) or list(arrays) != [MATRIX]:
        raise ValueError("it has no noise matrix")
    try:
        return torch.from_numpy(np.array(arrays[MATRIX].numpy()))
    except Exception as error:  # numpy and torch raise errors of many types on untrusted bytes
        raise ValueError("its noise matrix cannot be read") from error


def _share(content: RecordDict, name: str) -> float:
    record = content.get(FACTS)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise ValueError(f"its {name} is not between 0 and 1")
    return value
