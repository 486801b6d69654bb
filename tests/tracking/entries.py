"""A round's record and a summary as a run writes them, with names in every place where there may be some."""

from rofl.audit.result import NoiseEstimate
from rofl.training.records import NoiseRecord, RoundRecord, RunSummary, Traffic

RECORD = RoundRecord(
    round=1,
    accuracy=50.0,
    seconds=0.5,
    cohort=[0, 2],
    dropped={"2": "it could not read secret.png"},
    metrics={"loss": 1.5},
    traffic=Traffic(down_model=10, down_aux=1, up_model=20, up_aux=2),
)
SUMMARY = RunSummary(
    name="x-rays",
    method="rofl",
    dataset="own",
    noise=NoiseRecord(ratio=0.0, achieved=None),
    rounds=3,
    seed=0,
    test_accuracy=50.0,
    best_accuracy=None,
    seconds=1.5,
    seconds_per_round=0.5,
    bytes_up=66,
    bytes_down=33,
    note="Left out, since they cannot be read: 1 image, secret.png.",
    digest="f7d5",
    estimated=NoiseEstimate(ratio=0.25, clients={"secret hospital": 0.25}, transition=[[1.0]]),
    classes=["secret disease"],
)


def record_of(index: int) -> RoundRecord:
    """The record of a round by its number."""
    return RECORD.model_copy(update={"round": index})
