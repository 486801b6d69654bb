"""A round and an outcome as a run writes them, with names in every place where there may be some."""

from typing import Any

ENTRY: dict[str, Any] = {
    "round": 1,
    "accuracy": 50.0,
    "seconds": 0.5,
    "cohort": [0, 2],
    "dropped": {"2": "it could not read secret.png"},
    "metrics": {"loss": 1.5},
    "traffic": {"down_model": 10, "down_extra": 1, "up_model": 20, "up_extra": 2},
}
SUMMARY: dict[str, Any] = {
    "name": "x-rays",
    "method": "rofl",
    "noise": {"ratio": 0.0, "achieved": None},
    "test_accuracy": 50.0,
    "detection": None,
    "estimated": {"ratio": 0.25, "clients": {"secret hospital": 0.25}, "transition": [[1.0]]},
    "classes": ["secret disease"],
    "note": "Left out, since they cannot be read: 1 image, secret.png.",
    "news": ["secret.png"],
    "digest": "f7d5",
}
