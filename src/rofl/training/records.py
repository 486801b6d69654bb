"""The records of a run: a line of metrics.jsonl per round, and summary.json. Only these types read and write them.

Records of version 0.1 have no `format`; their field names are accepted too.
"""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, model_validator

from rofl.audit.result import AuditMetrics, ListQuality, NoiseEstimate
from rofl.audit.suspects import Detection
from rofl.core.settings import rename
from rofl.data.specs import DataSpec
from rofl.simulation.rounds import RoundResult
from rofl.training.guard import GuardEvent
from rofl.training.held_out import Evaluation, HeldOut

FORMAT = 2  # of summary.json; 0.1 wrote no number
LAST_ROUNDS = 10  # rounds whose mean accuracy is reported, as in the paper's tables
START_UP = 60.0  # seconds; a shorter first round may be dominated by starting processes, so its time is not used


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Traffic(_Record):
    """Bytes of one round or of all rounds: down to the clients, and up from those that replied."""

    down_model: int = 0
    down_aux: int = Field(0, validation_alias=AliasChoices("down_aux", "down_extra"))
    up_model: int = 0
    up_aux: int = Field(0, validation_alias=AliasChoices("up_aux", "up_extra"))

    @property
    def down(self) -> int:
        """All bytes to the clients."""
        return self.down_model + self.down_aux

    @property
    def up(self) -> int:
        """All bytes from the clients."""
        return self.up_model + self.up_aux

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(
            down_model=self.down_model + other.down_model,
            down_aux=self.down_aux + other.down_aux,
            up_model=self.up_model + other.up_model,
            up_aux=self.up_aux + other.up_aux,
        )


class RoundRecord(_Record):
    """One round: a line of metrics.jsonl."""

    round: int
    accuracy: float | None = None  # on the test set, in per cent; None if it was not evaluated
    seconds: float = 0.0
    cohort: list[int] = []  # the clients that were asked
    dropped: dict[str, str] = {}  # client -> why it was left out
    metrics: dict[str, float] = {}  # means over the samples that were trained on
    traffic: Traffic = Traffic()
    held_out: HeldOut | None = None  # counts of predictions; None if it was not evaluated
    warnings: list[GuardEvent] = []  # the guard's warnings after this round
    suspects: list[int] = []  # clients whose updates were far from the others', farthest first
    voters: int = 0  # sites that compared the model with their own local model
    objections: int = 0  # of these, the ones that found it much worse
    rolled_back: str = ""  # why the round was undone; its accuracy is that of the discarded model
    restored: int | None = None  # the round whose model was restored then; 0 for the initial one

    @classmethod
    def from_result(cls, result: RoundResult) -> "RoundRecord":
        """Return the record of a finished round, without its evaluation."""
        return cls(
            round=result.index,
            seconds=round(result.seconds, 4),
            cohort=result.cohort,
            dropped={str(client): reason for client, reason in result.dropped.items()},
            metrics=result.metrics,
            traffic=Traffic.model_validate(asdict(result.traffic)),
            suspects=result.suspects,
        )

    def with_evaluation(self, evaluation: Evaluation) -> "RoundRecord":
        """Return the record with its evaluation."""
        found: dict[str, object] = {"accuracy": evaluation.accuracy, "held_out": evaluation.held_out}
        found |= {"voters": evaluation.voters, "objections": evaluation.objections}
        return self.model_copy(update={**found, "suspects": [*evaluation.suspects] or self.suspects})

    @property
    def nobody_left(self) -> bool:
        """Whether every client of the cohort was left out, so that the round changed nothing."""
        return bool(self.cohort) and len(self.dropped) >= len(self.cohort)


class CheckpointFacts(_Record):
    """The metadata of a checkpoint."""

    round: int = Field(ge=0)  # the last finished round
    states: dict[int, int]  # client -> round of its state
    pending_record: RoundRecord | None = Field(None, validation_alias=AliasChoices("pending_record", "entry"))
    log_digest: str = ""  # of the lines that metrics.jsonl had by then


class NoiseRecord(_Record):
    """The label noise of a run: the ratio in the settings, and the one that was drawn."""

    kind: str = "symmetric"
    ratio: float = 0.0
    labels: str = ""
    client_spread: float = 0.0
    client_min: float = 0.0
    client_max: float = 0.0
    noisy_clients: float = 1.0
    fully_noisy_class: bool = False
    achieved: float | None = None  # the share of labels that are wrong; None if unknown

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, found: Any) -> Any:
        if not isinstance(found, Mapping):
            return found
        renamed = dict(rename(f"noise.{key}", value) for key, value in found.items())
        return {key.removeprefix("noise."): value for key, value in renamed.items()}


class PrivacyRecord(_Record):
    """The differential privacy of a run; docs/privacy.md."""

    clip: float
    noise: float
    delta: float
    epsilon: float | None  # None without a guarantee, or if the cohorts are unknown


class SiteRecord(_Record):
    """A site of a federation, as the coordinator knows it at the end."""

    samples: int
    flagged: int | None = None  # flagged labels; None if only the sum over all sites is known


class AuditRecord(_Record):
    """audit.json: an audit of new data with the model of a run."""

    format: int = 1
    model: str  # the folder of the run
    method: str  # the method that trained it
    digest: str  # of the model
    data: DataSpec  # where the data is; its fingerprint says what it was
    classes: list[str]
    estimated: NoiseEstimate
    versions: dict[str, str] = {}
    model_accuracy: float | None = None  # of the model on the test part of its run, in per cent; None if unknown
    tested_as_given: bool = False  # whether labels of that test part may be wrong, too

    @property
    def warning(self) -> str:
        """A warning that suspects may be errors of the model; "" if it flags more labels than its own error rate."""
        if self.model_accuracy is None or not 0 < 100 * self.estimated.ratio <= 100 - self.model_accuracy:
            return ""
        unless = ", unless many of those test labels are wrong, too" if self.tested_as_given else ""
        return (
            f"the model disagrees with {100 - self.model_accuracy:.1f} % of the test labels of its own run, and flags "
            f"{100 * self.estimated.ratio:.1f} % of the labels here: suspects may be its own mistakes{unless}"
        )

    def to_json(self) -> str:
        """Return the content of audit.json."""
        return self.model_dump_json(indent=2) + "\n"


class RunSummary(_Record):
    """summary.json: the outcome of a finished run. Its JSON Schema is docs/summary.schema.json.

    An audit that rewrites the file keeps fields of later versions.
    """

    model_config = ConfigDict(extra="allow")

    format: int = 1  # of this record; files of 0.1 have no number
    name: str
    method: str
    dataset: str
    noise: NoiseRecord
    rounds: int
    seed: int
    test_accuracy: float | None  # mean of the last ten rounds, in per cent
    best_accuracy: float | None
    final_accuracy: float | None = None
    seconds: float
    seconds_per_round: float
    bytes_up: int
    bytes_down: int
    bytes_centroids: int = 0  # of both: everything except weights
    centroid_share: float = 0.0
    privacy: PrivacyRecord | None = None
    note: str = ""
    dropped: int = 0  # clients that were left out of a round, over all rounds
    versions: dict[str, str] = {}
    digest: str  # SHA-256 of the last round's server state
    selected: Literal["best", "last"] = "last"  # which round's model is saved and used for the audit
    selected_round: int | None = None  # its number; None in files of 0.1
    selected_digest: str = ""  # SHA-256 of its server state
    model_accuracy: float | None = None  # of the saved model, in per cent
    rounds_run: int | None = None  # fewer than `rounds` if training stopped early; None in files of 0.1
    stopped: str = ""  # why it stopped early, in one sentence
    warnings: list[GuardEvent] = []  # of the guard
    rolled_back: list[int] = []  # rounds that were undone
    detection: Detection | None = None  # by the mask of Eq. 7; None if the true labels are unknown
    audit: ListQuality | None = None  # of the lists of suspects; None if the true labels are unknown
    estimated: NoiseEstimate | None = None  # None in some files of 0.1
    classes: list[str] = []
    shape: list[int] = []  # channels, height, width of a network input
    sites: dict[str, SiteRecord] = {}  # of a federation, as the coordinator knows them

    @model_validator(mode="before")
    @classmethod
    def _upgrade(cls, found: Any) -> Any:
        """0.1 called the accuracy of suggestions `right_suggestions`."""
        audit = found.get("audit") if isinstance(found, Mapping) else None
        if not isinstance(audit, Mapping) or "right_suggestions" not in audit:
            return found
        rest = {key: value for key, value in audit.items() if key != "right_suggestions"}
        return {**found, "audit": {**rest, "suggestion_accuracy": audit["right_suggestions"]}}

    @property
    def precision(self) -> float | None:
        """The precision of the labels that the method distrusts; None if unknown."""
        return None if self.detection is None else self.detection.precision

    @property
    def recall(self) -> float | None:
        """The recall of the labels that the method distrusts; None if unknown."""
        return None if self.detection is None else self.detection.recall

    @property
    def has_centroids(self) -> bool:
        """Whether the method exchanges anything besides weights."""
        return self.bytes_centroids > 0

    def with_audit(self, metrics: AuditMetrics) -> "RunSummary":
        """Return the summary with the metrics of an audit."""
        return self.model_copy(update={field.name: getattr(metrics, field.name) for field in fields(metrics)})

    def to_json(self) -> str:
        """Return the content of summary.json."""
        return self.model_dump_json(indent=2) + "\n"
