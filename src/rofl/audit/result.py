"""The audit of a federated data set: a list of suspects per client, and the figures for summary.json."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

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
from rofl.audit.suspects import (
    Detection,
    JudgedLabels,
    Suspects,
    average_precision,
    calibration_error,
    centroid_disagrees,
    detection,
    suggestion_accuracy,
)
from rofl.core.centroids import has_centroid
from rofl.core.classification import class_probabilities
from rofl.core.noise_posterior import transition
from rofl.core.rng import generator
from rofl.data.federated import FederatedDataset

_KEPT_FEATURES = 600  # number of samples whose features are stored for the t-SNE picture


@dataclass(frozen=True)
class Features:
    """Features of some samples from the final model, for the t-SNE picture of the page."""

    rows: Tensor  # (m,) indices in the training set
    features: Tensor  # (m, d)
    centroids: Tensor | None  # (K, d); None if the method has none

    @property
    def is_sound(self) -> bool:
        """Whether shapes and types are as declared and all numbers finite; content read from a file may not be."""
        rows, features, centroids = self.rows, self.features, self.centroids
        if rows.dtype != torch.int64 or features.dtype != torch.float32 or (rows.dim(), features.dim()) != (1, 2):
            return False
        if len(rows) != len(features) or bool((rows < 0).any()) or not bool(torch.isfinite(features).all()):
            return False
        return centroids is None or (centroids.dim() == 2 and centroids.shape[1] == features.shape[1])


@dataclass(frozen=True)
class ListQuality:
    """Quality of the lists of suspects by the true labels; a figure is None if its denominator is zero."""

    precision: float | None  # share of the flagged labels that are wrong
    recall: float | None  # share of the wrong labels that are flagged
    f1: float | None
    average_precision: float | None  # of the ranking by score
    suggestion_accuracy: float | None  # share of right suggestions among wrong labels that are flagged
    calibration_error: float | None = None  # of the scores as probabilities, in ten bins (ECE); runs of 0.1 have none


@dataclass(frozen=True)
class NoiseEstimate:
    """The label noise as estimated by the model, without true labels."""

    ratio: float  # the share of flagged labels
    clients: dict[str, float]  # the share of flagged labels of each client, by name
    transition: list[list[float]]  # (K, K): share of the samples of suggested class i that are labelled j
    intervals: dict[str, list[float]] = field(default_factory=dict)  # bounds of the share of wrong labels, per client
    class_intervals: dict[str, list[float]] = field(default_factory=dict)  # the same per label
    expected_ratio: float | None = None  # the mean score, which is the expected share of wrong labels
    expected_unflagged: float | None = None  # the expected share of wrong labels that are not flagged
    expected_clients: dict[str, float] = field(default_factory=dict)  # the mean score of each client

    @property
    def is_unsure(self) -> bool:
        """Whether the model is too unsure of these samples to estimate the number of wrong labels."""
        return self.expected_unflagged is not None and scores_are_unsure(self.expected_unflagged, 1 - self.ratio)


@dataclass(frozen=True)
class AuditMetrics:
    """The part of summary.json that an audit contributes; see `RunSummary.with_audit`."""

    detection: Detection | None  # by the mask of Eq. 7; None if the true labels are unknown
    audit: ListQuality | None  # None if the true labels are unknown
    estimated: NoiseEstimate
    classes: list[str]
    shape: list[int]  # channels, height, width of a network input


@dataclass(frozen=True)
class AuditResult:
    """A model's judgement of every training label, in the samples' order.

    `AuditFiles.write` in `training/audit_files.py` writes the clients' lists and the features.
    """

    federated: FederatedDataset
    suspects: JudgedLabels
    untrusted: Tensor  # (N,) labels that the method itself does not trust: the mask of Eq. 7 is 0
    features: Features
    issues: Sequence[SampleIssue] = ()  # near-duplicates and outliers, whatever their labels
    rate_deviation: float = 0.0  # of the rate of wrong labels over all clients, see `LabelNoise`

    def metrics(self) -> AuditMetrics:
        """Return the figures for summary.json; those that need the true labels are None if these are unknown."""
        federated, truth_known = self.federated, self.federated.images.truth_known
        return AuditMetrics(
            detection=detection(self.untrusted, federated.wrong) if truth_known else None,
            audit=_list_quality(federated, self.suspects) if truth_known else None,
            estimated=_estimate_noise(federated, self.suspects, self.rate_deviation),
            classes=list(federated.images.classes),
            shape=list(federated.images.shape),
        )

    def client_rows(self, client: str, rows: Tensor) -> Iterator[SuspectRow]:
        """Yield the rows of one client's list, most suspicious first.

        Args:
            client: the client's name.
            rows: (n,) the indices of its samples in the training set.
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

    This is called at the end of a run, by `rofl audit`, and at each site of a federation for the site's samples.

    Args:
        federated: the samples and their given labels.
        centroids: (K, d) of the method, which determine the labels that it does not trust (Eq. 7). None if the method
            has none; then labels that differ from the predictions count as not trusted.
        logits: (N, K) of all training samples.
        features: (N, d) of all training samples.
        noise: the estimate over all sites of a federation; None to estimate the noise from these samples.
        held_out: logits (m, K) and given labels (m,) of samples that the model was not trained with, used to estimate
            the noise; None if there are none.
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
    assigned = torch.cat([rows for _, rows in federated.client_views]).sort().values  # samples that belong to a client
    shuffled = assigned[torch.randperm(len(assigned), generator=generator(federated.spec.seed, "picture"))]
    kept = shuffled[:_KEPT_FEATURES]
    kept_features = Features(kept, features[kept].clone(), centroids)
    issues = find_issues(federated, features)
    return AuditResult(federated, suspects, untrusted, kept_features, issues, noise.rate_deviation)


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


def _estimate_noise(federated: FederatedDataset, suspects: JudgedLabels, deviation: float) -> NoiseEstimate:
    classes = federated.images.classes
    counts = transition_counts(federated.labels, suspects.suggested, len(classes))
    score = suspects.score.double()
    of_class = {name: (federated.labels == place).nonzero().flatten() for place, name in enumerate(classes)}
    return NoiseEstimate(
        ratio=noise_ratio(suspects.flagged),
        clients={name: round(noise_ratio(suspects.flagged[rows]), 6) for name, rows in federated.client_views},
        transition=[[round(share, 6) for share in row] for row in transition(counts).tolist()],
        intervals={name: _interval(suspects, rows, deviation) for name, rows in federated.client_views},
        class_intervals={name: _interval(suspects, rows, deviation) for name, rows in of_class.items()},
        expected_ratio=_mean(score),
        expected_unflagged=_mean(torch.where(suspects.flagged, 0.0, score)),
        expected_clients={name: _mean(score[rows]) for name, rows in federated.client_views},
    )


def _mean(values: Tensor) -> float:
    return round(float(values.mean()), 6) if len(values) else 0.0


def _interval(judged: JudgedLabels, rows: Tensor, deviation: float) -> list[float]:
    bounds = noise_interval(judged.flagged[rows], judged.score[rows], judged.doubt[rows], deviation)
    return [round(bound, 6) for bound in bounds]
