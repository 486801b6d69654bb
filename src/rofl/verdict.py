"""What a model says about a scene's labels: lists for the clients, figures for all, features for the picture."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from rofl.audit import (
    Suspects,
    average_precision,
    detection,
    find_suspects,
    noise_ratio,
    right_suggestions,
    transition,
    transition_counts,
    unlike_centroid,
)
from rofl.core.seeds import generator
from rofl.data.own.names import safe_names
from rofl.methods.base import Global
from rofl.run_folder import Features, RunFolder
from rofl.scene import Scene

_DRAWN = 600  # samples whose features are kept for the picture


@dataclass(frozen=True)
class Verdict:
    """A judgement on every training label of a scene, in the samples' order."""

    scene: Scene
    suspects: Suspects
    untrusted: Tensor  # (N,) labels that the method itself would not train on: Eq. 7's mask is 0
    features: Features  # of some samples

    def figures(self) -> dict[str, Any]:
        """What of it is in summary.json."""
        scene, suspects = self.scene, self.suspects
        return {
            "detection": asdict(detection(self.untrusted, scene.wrong)) if scene.images.truth_known else None,
            "audit": _audit(scene, suspects) if scene.images.truth_known else None,
            "estimated": _estimates(scene, suspects),
            "classes": list(scene.images.classes),
            "shape": list(scene.images.shape),
        }

    def write(self, folder: RunFolder) -> None:
        """Each client's own list; nothing of one client stands in another's file."""
        lists = self.scene.lists
        for (client, rows), file in zip(lists, safe_names([client for client, _ in lists]), strict=True):
            folder.write_suspects(file, list(self._lines(client, rows)))
        folder.write_features(self.features)

    def _lines(self, client: str, rows: Tensor) -> Iterator[dict[str, Any]]:
        """The lines of one client's list, most suspicious first."""
        names, ids = self.scene.images.classes, self.scene.images.ids
        order = rows[self.suspects.score[rows].argsort(descending=True, stable=True)]
        labels, suspects = self.scene.labels, self.suspects
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


def judge(scene: Scene, glob: Global, logits: Tensor, features: Tensor) -> Verdict:
    """The verdict of a global model with these logits (N, K) and features (N, d) of all training samples."""
    centroids = glob.extra.get("centroids")
    probabilities = logits.double().softmax(dim=1).nan_to_num(1 / logits.shape[1])  # overflow says nothing
    suspects = find_suspects(scene.labels, probabilities)
    untrusted = (
        logits.argmax(dim=1) != scene.labels
        if centroids is None
        else unlike_centroid(scene.labels, features, centroids)
    )
    held = torch.cat([rows for _, rows in scene.lists]).sort().values
    drawn = held[torch.randperm(len(held), generator=generator(scene.experiment.seed, "picture"))[:_DRAWN]]
    return Verdict(scene, suspects, untrusted, Features(drawn, features[drawn].clone(), centroids))


def _audit(scene: Scene, suspects: Suspects) -> dict[str, float | None]:
    """How good the list is, by the truth."""
    found = detection(suspects.flagged, scene.wrong)
    return {
        **asdict(found),
        "f1": found.f1,
        "average_precision": average_precision(suspects.score, scene.wrong),
        "right_suggestions": right_suggestions(suspects, scene.images.train_labels, scene.wrong),
    }


def _estimates(scene: Scene, suspects: Suspects) -> dict[str, Any]:
    """What the model makes of the noise, without any true label: in all, of each client, and from class to class."""
    counts = transition_counts(scene.labels, suspects.suggested, len(scene.images.classes))
    clients = {name: round(noise_ratio(suspects.flagged[rows]), 6) for name, rows in scene.lists}
    matrix = [[round(share, 6) for share in row] for row in transition(counts).tolist()]
    return {"ratio": noise_ratio(suspects.flagged), "clients": clients, "transition": matrix}
