"""The sums from which the label noise of all sites is estimated, and the estimate, as messages.

After the last round each site sends `PredictionSums`, then, for the mean doubt over all sites, `SureSums`; the
estimate comes with the requests that follow. What arrives is checked on both sides.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from rofl.audit.noise_estimation import LabelNoise, PredictionSums, SureSums
from rofl.core.fixed_point import NUMBER_BITS
from rofl.federation.protocol import get_sums, put_sums
from rofl.federation.tensor_records import decode_count, decode_table, put_tensors

_STEP = 1 << NUMBER_BITS
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


def encode_sure(sums: SureSums) -> RecordDict:
    """Return the sums of the second pass as a message."""
    return put_sums(RecordDict(), {"sure": sums.samples, "disagreements": sums.disagreements})


def decode_sure(content: RecordDict, declared: int) -> SureSums:
    """Return the sums of the second pass, of one site or of several; a ValueError says what is wrong with them."""
    sums = get_sums(content)
    sure, disagreements = decode_count(sums, "sure"), decode_count(sums, "disagreements")
    if not disagreements <= sure <= declared:
        raise ValueError(f"it counts {disagreements} disagreements of {sure} samples, and {declared} were declared")
    return SureSums(sure, disagreements)


def put_mean_doubt(content: RecordDict, mean_doubt: float) -> RecordDict:
    """Return a request for sums of the second pass; its arrays are not copied."""
    return RecordDict({**content, FACTS: ConfigRecord({"mean doubt": mean_doubt})})


def get_mean_doubt(content: RecordDict) -> float:
    """Return the mean doubt of a request; a ValueError says that there is none."""
    return _share(content, "mean doubt")


def put_noise(content: RecordDict, noise: LabelNoise | None) -> RecordDict:
    """Return a request with the noise over all sites, where it is known; its arrays are not copied."""
    if noise is None:
        return content
    matrix = ArrayRecord({MATRIX: Array(noise.matrix.numpy())})
    return RecordDict({**content, FACTS: ConfigRecord({"learnt": noise.learnt}), MATRIX: matrix})


def get_noise(content: RecordDict, classes: int) -> LabelNoise | None:
    """Return the noise over all sites that a request brings, or None where it brings none.

    Args:
        content: The request.
        classes: How many classes the model has.

    Raises:
        ValueError: If it cannot be used. The text fits after "the coordinator's estimate was refused: ".
    """
    arrays = content.get(MATRIX)
    if arrays is None:
        return None
    if not isinstance(arrays, ArrayRecord) or list(arrays) != [MATRIX]:
        raise ValueError("it has no noise matrix")
    try:
        matrix = torch.from_numpy(np.array(arrays[MATRIX].numpy()))
    except Exception as error:  # numpy and torch raise errors of many types on bytes from elsewhere
        raise ValueError("its noise matrix cannot be read") from error
    noise = LabelNoise(matrix, _share(content, "learnt"))
    noise.check(classes)
    return noise


def add_predictions(found: Sequence[PredictionSums]) -> PredictionSums | None:
    """Return the sums over all sites, or None where no sample is counted."""
    if not any(each.samples for each in found):
        return None
    return sum(found[1:], start=found[0])


def _share(content: RecordDict, name: str) -> float:
    record = content.get(FACTS)
    value = record.get(name) if isinstance(record, ConfigRecord) else None
    if not isinstance(value, float) or not 0 <= value <= 1:
        raise ValueError(f"its {name} is not between 0 and 1")
    return value
