"""The sums from which the label noise of all sites is estimated, and the estimate, as messages.

After the last round each site sends `PredictionSums`, then, for the mean doubt and the pattern of the noise over all
sites, `SureSums` and `HeldOutSums`, then `ScoreSums`; the estimate comes with the requests that follow. What arrives is
checked on both sides.
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

from rofl.audit.held_out_noise import DISCOUNTS, HeldOutSums, ScoreSums
from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums
from rofl.core import noise_fit
from rofl.core.fixed_point import NUMBER_BITS
from rofl.federation.protocol import get_sums, put_sums
from rofl.federation.tensor_records import decode_count, decode_table, get_tensors, put_tensors

_STEP = 1 << NUMBER_BITS
_FINE = 1 << 32  # steps of likelihoods and scores: their sums over 50 million samples are exact, too
_GRID = (len(noise_fit.TEMPERATURES), len(noise_fit.RATES))  # of the likelihoods
Sums = TypeVar("Sums", PredictionSums, HeldOutSums, ScoreSums)
MATRIX, FACTS = "noise matrix", "noise"  # records of a request beside its model


def encode_predictions(sums: PredictionSums) -> RecordDict:
    """Return the sums of the first pass as a message.

    The doubt is rounded up to a whole step of fixed point, so that the mean over all sites is not below every sample.
    """
    doubt = math.ceil(sums.doubt * _STEP) / _STEP
    content = put_sums(RecordDict(), {"samples": sums.samples, "doubt": doubt})
    return put_tensors(content, tables={"predicted": sums.counts})


def decode_predictions(content: RecordDict, classes: int, declared: int) -> PredictionSums:
    """Return the sums of the first pass, of one site or of several.

    Args:
        content: The message.
        classes: How many classes the model has.
        declared: How many samples there are at most.

    Raises:
        ValueError: If the message holds anything else.
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
    """Return the sums of the second pass as a message.

    Likelihoods are whole steps of fixed point, so that their sum over sites is exact.
    """
    counts = {"sure": sums.samples, "disagreements": sums.disagreements, "held out": held_out.samples}
    return put_tensors(put_sums(RecordDict(), counts), tables={"likelihoods": _to_steps(held_out.likelihoods)})


def decode_sure(content: RecordDict, declared: int) -> tuple[SureSums, HeldOutSums]:
    """Return the sums of the second pass, of one site or of several; a ValueError says what is wrong with them."""
    sums = get_sums(content)
    sure, disagreements = decode_count(sums, "sure"), decode_count(sums, "disagreements")
    if not disagreements <= sure <= declared:
        raise ValueError(f"it counts {disagreements} disagreements of {sure} samples, and {declared} were declared")
    held_out = decode_count(sums, "held out")
    if held_out > declared:
        raise ValueError(f"it holds out {held_out} samples, and {declared} were declared")
    likelihoods = _get_steps(content, "likelihoods", _GRID)
    if not bool(((likelihoods <= 0) & (likelihoods >= noise_fit.LOWEST * held_out - 1)).all()):
        raise ValueError(f"its likelihoods are none of {held_out} labels")
    return SureSums(sure, disagreements), HeldOutSums(likelihoods, held_out)


def no_held_out() -> HeldOutSums:
    """Return the sums of no held-out samples."""
    return HeldOutSums(torch.zeros(_GRID, dtype=torch.float64), 0)


def encode_scores(sums: ScoreSums) -> RecordDict:
    """Return the sums of the third pass as a message."""
    return put_tensors(put_sums(RecordDict(), {"samples": sums.samples}), tables={"scores": _to_steps(sums.scores)})


def decode_scores(content: RecordDict, declared: int) -> ScoreSums:
    """Return the sums of the third pass, of one site or of several; a ValueError says what is wrong with them."""
    samples = decode_count(get_sums(content), "samples")
    if samples > declared:
        raise ValueError(f"it counts {samples} samples, and {declared} were declared")
    scores = _get_steps(content, "scores", (len(DISCOUNTS),))
    if not bool(((scores >= 0) & (scores <= samples + 1)).all()):
        raise ValueError(f"its scores are none of {samples} samples")
    return ScoreSums(scores, samples)


def put_noise_facts(content: RecordDict, mean_doubt: float, pattern: Tensor) -> RecordDict:
    """Return a request for sums of the second pass; its arrays are not copied.

    Args:
        content: A request with the final model.
        mean_doubt: Over the samples of all sites.
        pattern: (K, K) of their noise.
    """
    arrays = ArrayRecord({MATRIX: Array(pattern.numpy())})
    return RecordDict({**content, FACTS: ConfigRecord({"mean doubt": mean_doubt}), MATRIX: arrays})


def get_noise_facts(content: RecordDict, classes: int) -> tuple[float, Tensor]:
    """Return mean doubt and pattern of a request; a ValueError says that they cannot be used.

    Args:
        content: The request.
        classes: How many classes the model has.
    """
    pattern = LabelNoise(_get_matrix(content), learnt=0.0)
    pattern.check(classes)
    return _share(content, "mean doubt"), pattern.matrix


def put_noise(content: RecordDict, noise: LabelNoise | None) -> RecordDict:
    """Return a request with the noise over all sites, where it is known; its arrays are not copied."""
    if noise is None:
        return content
    matrix = ArrayRecord({MATRIX: Array(noise.matrix.numpy())})
    facts = ConfigRecord({"learnt": noise.learnt})
    if noise.temperature is not None:
        facts["temperature"] = noise.temperature
    return RecordDict({**content, FACTS: facts, MATRIX: matrix})


def get_noise(content: RecordDict, classes: int) -> LabelNoise | None:
    """Return the noise over all sites that a request brings, or None where it brings none.

    Args:
        content: The request.
        classes: How many classes the model has.

    Raises:
        ValueError: If it cannot be used. The text fits after "the coordinator's estimate was refused: ".
    """
    if content.get(MATRIX) is None:
        return None
    facts = content.get(FACTS)
    temperature = facts.get("temperature") if isinstance(facts, ConfigRecord) else None
    if temperature is not None and not isinstance(temperature, float):
        raise ValueError("its temperature is no number")
    noise = LabelNoise(_get_matrix(content), _share(content, "learnt"), temperature)
    noise.check(classes)
    return noise


def add_sums(found: Sequence[Sums]) -> Sums | None:
    """Return the sums over all sites, or None where no sample is counted."""
    return reduce(add, found) if any(each.samples for each in found) else None


def _to_steps(values: Tensor) -> Tensor:
    return (values.double() * _FINE).round().long()


def _get_steps(content: RecordDict, name: str, shape: tuple[int, ...]) -> Tensor:
    (tables,) = get_tensors(content, "tables")
    table = tables.get(name)
    if list(tables) != [name] or table is None or table.dtype != torch.int64 or table.shape != shape:
        raise ValueError(f"it has no {name}")
    return table.double() / _FINE


def _get_matrix(content: RecordDict) -> Tensor:
    arrays = content.get(MATRIX)
    if not isinstance(arrays, ArrayRecord) or list(arrays) != [MATRIX]:
        raise ValueError("it has no noise matrix")
    try:
        return torch.from_numpy(np.array(arrays[MATRIX].numpy()))
    except Exception as error:  # numpy and torch raise errors of many types on bytes from elsewhere
        raise ValueError("its noise matrix cannot be read") from error


def _share(content: RecordDict, name: str) -> float:
    record = content.get(FACTS)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise ValueError(f"its {name} is not between 0 and 1")
    return value
