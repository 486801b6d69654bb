"""The audit of a federated data set: a list of suspects for each client, and the figures of summary.json."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rofl.audit.detection import Detection, average_precision, calibration_error, detection, suggestion_accuracy
from rofl.audit.held_out_noise import estimate_noise, judge_clients
from rofl.audit.noise_estimation import (
    LabelNoise,
    noise_interval,
    noise_ratio,
    scores_are_unsure,
    transition_counts,
)
from rofl.audit.sample_issues import SampleIssue, find_issues
from rofl.audit.suspect_list import SuspectRow
from rofl.audit.suspects import JudgedLabels, Suspects, centroid_disagrees
from rofl.core.centroids import has_centroid
from rofl.core.classification import class_probabilities
from rofl.core.noise_posterior import transition
from rofl.core.rng import generator
from rofl.data.federated import FederatedDataset

_KEPT_FEATURES = 600  # samples whose features are kept for the t-SNE picture


@dataclass(frozen=True)
class Features:
    """Features of some samples by the final model, which the t-SNE picture of the page shows."""

    rows: Tensor  # (m,) numbers in the training set
    features: Tensor  # (m, d)
    centroids: Tensor | None  # (K, d); None where the method has none

    @property
    def is_sound(self) -> bool:
        """Whether shapes and types are those above, and all numbers are finite; a file may hold others."""
        rows, features, centroids = self.rows, self.features, self.centroids
        if rows.dtype != torch.int64 or features.dtype != torch.float32 or (rows.dim(), features.dim()) != (1, 2):
            return False
        if len(rows) != len(features) or bool((rows < 0).any()) or not bool(torch.isfinite(features).all()):
            return False
        return centroids is None or (centroids.dim() == 2 and centroids.shape[1] == features.shape[1])


@dataclass(frozen=True)
class ListQuality:
    """How good the lists of suspects are, by the true labels; a figure is None where its denominator is zero."""

    precision: float | None  # of the flagged labels, the share that is wrong
    recall: float | None  # of the wrong labels, the share that is flagged
    f1: float | None
    average_precision: float | None  # of the ranking by score
    suggestion_accuracy: float | None  # of the wrong labels that are flagged, the share with the right suggestion
    calibration_error: float | None = None  # of the scores as probabilities, in ten bins (ECE); runs of 0.1 have none


@dataclass(frozen=True)
class NoiseEstimate:
    """The noise as the model sees it; no true label is used."""

    ratio: float  # the share of labels that are flagged
    clients: dict[str, float]  # the same for each client; its name is the key
    transition: list[list[float]]  # (K, K): the share of class i, by the model, that is labelled j
    intervals: dict[str, list[float]] = field(default_factory=dict)  # lowest and highest share of each client
    class_intervals: dict[str, list[float]] = field(default_factory=dict)  # of wrong ones among equal labels
    expected_ratio: float | None = None  # the mean score: the share of wrong labels to be expected
    expected_unflagged: float | None = None  # the share of labels that are expected to be wrong and are not flagged
    expected_clients: dict[str, float] = field(default_factory=dict)  # the mean score of each client

    @property
    def is_unsure(self) -> bool:
        """Whether the model knows too little of these samples for its scores to tell how many labels are wrong."""
        return self.expected_unflagged is not None and scores_are_unsure(self.expected_unflagged, 1 - self.ratio)


@dataclass(frozen=True)
class AuditMetrics:
    """The part of summary.json that an audit contributes; `RunSummary.with_audit` puts it in."""

    detection: Detection | None  # by the mask of Eq. 7; None where the truth is not known
    audit: ListQuality | None  # None where the truth is not known
    estimated: NoiseEstimate
    classes: list[str]
    shape: list[int]  # channels, height, width of a network input


@dataclass(frozen=True)
class AuditResult:
    """A model's judgement of every training label, in the samples' order.

    `AuditFiles.write` in `training/audit_files.py` writes the clients' lists and the features from it.
    """

    federated: FederatedDataset
    suspects: JudgedLabels
    untrusted: Tensor  # (N,) labels that the method itself does not trust: Eq. 7's mask is 0
    features: Features
    issues: Sequence[SampleIssue] = ()  # near-duplicates and outliers, whatever their labels are

    def metrics(self) -> AuditMetrics:
        """Return the figures for summary.json; those that need the truth are None where it is not known."""
        federated, truth_known = self.federated, self.federated.images.truth_known
        return AuditMetrics(
            detection=detection(self.untrusted, federated.wrong) if truth_known else None,
            audit=_list_quality(federated, self.suspects) if truth_known else None,
            estimated=_estimate_noise(federated, self.suspects),
            classes=list(federated.images.classes),
            shape=list(federated.images.shape),
        )

    def client_rows(self, client: str, rows: Tensor) -> Iterator[SuspectRow]:
        """Yield the rows of one client's list, most suspicious first.

        Args:
            client: the client's name.
            rows: (n,) the numbers of its samples in the training set.
        """
        images, suspects = self.federated.images, self.suspects
        order = rows[suspects.score[rows].argsort(descending=True, stable=True)]
        columns = (self.federated.labels, suspects.suggested, suspects.score, suspects.flagged)
        values = zip(order.tolist(), *(column[order].tolist() for column in columns), strict=True)
        for row, given, suggested, score, flagged in values:
            name = images.ids[row] if images.ids else str(row)
            yield SuspectRow(row, client, name, images.classes[given], images.classes[suggested], score, flagged)


def audit_labels(
    federated: FederatedDataset,
    centroids: Tensor | None,
    logits: Tensor,
    features: Tensor,
    noise: LabelNoise | None = None,
    held_out: tuple[Tensor, Tensor] | None = None,
) -> AuditResult:
    """Judge all training labels by a model.

    Called at the end of a run, by `rofl audit`, and at each site of a federation with that site's samples.

    Args:
        federated: the samples and their given labels.
        centroids: (K, d) of the method, whose similarities say what it does not trust (Eq. 7); None where the method
            has none: then it does not trust labels that differ from its predictions.
        logits: (N, K) of all training samples.
        features: (N, d) of all training samples.
        noise: as estimated over all sites of a federation; estimated from these samples where None.
        held_out: logits (m, K) and labels (m,) as given of samples that the model was not trained with, by which the
            noise is estimated; None where there are none.
    """
    probabilities = class_probabilities(logits)
    if noise is None:
        others = None if held_out is None else (held_out[1], class_probabilities(held_out[0]))
        noise = estimate_noise(federated.labels, probabilities, others)
    suspects = judge_clients(federated.labels, probabilities, noise, [rows for _, rows in federated.client_views])
    if centroids is None or not bool(has_centroid(centroids).any()):  # none, or none yet
        untrusted = logits.argmax(dim=1) != federated.labels
    else:
        untrusted = centroid_disagrees(federated.labels, features, centroids)
    assigned = torch.cat([rows for _, rows in federated.client_views]).sort().values  # samples that a client has
    shuffled = assigned[torch.randperm(len(assigned), generator=generator(federated.spec.seed, "picture"))]
    kept = shuffled[:_KEPT_FEATURES]
    kept_features = Features(kept, features[kept].clone(), centroids)
    return AuditResult(federated, suspects, untrusted, kept_features, find_issues(federated, features))


def _list_quality(federated: FederatedDataset, suspects: Suspects) -> ListQuality:
    flags = detection(suspects.flagged, federated.wrong)
    return ListQuality(
        precision=flags.precision,
        recall=flags.recall,
        f1=flags.f1,
        average_precision=average_precision(suspects.score, federated.wrong),
        suggestion_accuracy=suggestion_accuracy(suspects, federated.images.train_labels, federated.wrong),
        calibration_error=calibration_error(suspects.score, federated.wrong),
    )


def _estimate_noise(federated: FederatedDataset, suspects: JudgedLabels) -> NoiseEstimate:
    classes = federated.images.classes
    counts = transition_counts(federated.labels, suspects.suggested, len(classes))
    score = suspects.score.double()
    of_class = {name: (federated.labels == place).nonzero().flatten() for place, name in enumerate(classes)}
    return NoiseEstimate(
        ratio=noise_ratio(suspects.flagged),
        clients={name: round(noise_ratio(suspects.flagged[rows]), 6) for name, rows in federated.client_views},
        transition=[[round(share, 6) for share in row] for row in transition(counts).tolist()],
        intervals={name: _interval(suspects, rows) for name, rows in federated.client_views},
        class_intervals={name: _interval(suspects, rows) for name, rows in of_class.items()},
        expected_ratio=_mean(score),
        expected_unflagged=_mean(torch.where(suspects.flagged, 0.0, score)),
        expected_clients={name: _mean(score[rows]) for name, rows in federated.client_views},
    )


def _mean(values: Tensor) -> float:
    return round(float(values.mean()), 6) if len(values) else 0.0


def _interval(judged: JudgedLabels, rows: Tensor) -> list[float]:
    bounds = noise_interval(judged.flagged[rows], judged.score[rows], judged.doubt[rows])
    return [round(bound, 6) for bound in bounds]
