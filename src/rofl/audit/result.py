"""What a model says about a scene's labels: lists for the clients, figures for all, features for the picture."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rofl.audit.detection import average_precision, detection, suggestion_accuracy
from rofl.audit.noise_estimation import noise_ratio, transition, transition_counts
from rofl.audit.suspects import Suspects, centroid_disagrees, find_suspects
from rofl.core.rng import generator
from rofl.data.federated import FederatedDataset

_DRAWN = 600  # samples whose features are kept for the picture


@dataclass(frozen=True)
class Features:
    """Features of some samples by the final model, for the picture."""

    rows: Tensor  # (m,) of the training set
    features: Tensor  # (m, d)
    centroids: Tensor | None  # (K, d); None where the method has none


@dataclass(frozen=True)
class AuditResult:
    """A judgement on every training label of a scene, in the samples' order."""

    federated: FederatedDataset
    suspects: Suspects
    untrusted: Tensor  # (N,) labels that the method itself would not train on: Eq. 7's mask is 0
    features: Features  # of some samples

    def metrics(self) -> dict[str, Any]:
        """What of it is in summary.json."""
        federated, suspects = self.federated, self.suspects
        return {
            "detection": asdict(detection(self.untrusted, federated.wrong)) if federated.images.truth_known else None,
            "audit": _audit(federated, suspects) if federated.images.truth_known else None,
            "estimated": _estimates(federated, suspects),
            "classes": list(federated.images.classes),
            "shape": list(federated.images.shape),
        }

    def rows(self, client: str, rows: Tensor) -> Iterator[dict[str, Any]]:
        """The lines of one client's list, most suspicious first."""
        names, ids = self.federated.images.classes, self.federated.images.ids
        order = rows[self.suspects.score[rows].argsort(descending=True, stable=True)]
        labels, suspects = self.federated.labels, self.suspects
        columns = (labels, suspects.suggested, suspects.score, suspects.flagged)
        for row, given, better, score, flagged in zip(
            order.tolist(), *(column[order].tolist() for column in columns), strict=True
        ):
            yield {
                **({"sample": ids[row], "row": row, "client": client} if ids else {"sample": row}),
                "given": names[given],
                "suggested": names[better],
                "score": f"{score:.6f}",
                "flagged": "yes" if flagged else "no",
            }


def audit_labels(
    federated: FederatedDataset, centroids: Tensor | None, logits: Tensor, features: Tensor
) -> AuditResult:
    """The verdict of a global model with these logits (N, K) and features (N, d) of all training samples."""
    probabilities = logits.double().softmax(dim=1).nan_to_num(1 / logits.shape[1])  # overflow says nothing
    suspects = find_suspects(federated.labels, probabilities)
    untrusted = (
        logits.argmax(dim=1) != federated.labels
        if centroids is None
        else centroid_disagrees(federated.labels, features, centroids)
    )
    held = torch.cat([rows for _, rows in federated.client_views]).sort().values
    drawn = held[torch.randperm(len(held), generator=generator(federated.spec.seed, "picture"))[:_DRAWN]]
    return AuditResult(federated, suspects, untrusted, Features(drawn, features[drawn].clone(), centroids))


def _audit(federated: FederatedDataset, suspects: Suspects) -> dict[str, float | None]:
    """How good the list is, by the truth."""
    found = detection(suspects.flagged, federated.wrong)
    return {
        **asdict(found),
        "f1": found.f1,
        "average_precision": average_precision(suspects.score, federated.wrong),
        "right_suggestions": suggestion_accuracy(suspects, federated.images.train_labels, federated.wrong),
    }


def _estimates(federated: FederatedDataset, suspects: Suspects) -> dict[str, Any]:
    """What the model makes of the noise, without any true label: in all, of each client, and from class to class."""
    counts = transition_counts(federated.labels, suspects.suggested, len(federated.images.classes))
    clients = {name: round(noise_ratio(suspects.flagged[rows]), 6) for name, rows in federated.client_views}
    matrix = [[round(share, 6) for share in row] for row in transition(counts).tolist()]
    return {"ratio": noise_ratio(suspects.flagged), "clients": clients, "transition": matrix}
