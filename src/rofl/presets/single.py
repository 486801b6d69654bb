"""The paper's own settings for one run (section "Implementation details" and the supplement's)."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Preset:
    """Settings with a line about them."""

    about: str
    settings: dict[str, Any]


_FEDERATION = {"clients": 100, "cohort": 10}  # "100 clients, and 10 clients are selected at every round"

PAPER = {
    "mnist": Preset(
        "the paper's MNIST: 100 clients, 10 a round, 100 rounds, the 9-layer CNN",
        {
            "name": "mnist",
            "data": {"name": "mnist"},
            "model": {"name": "cnn9"},
            "method": {"name": "rofl", "t_pl": 30},
            "rounds": 100,
            **_FEDERATION,
        },
    ),
    "cifar10": Preset(
        "the paper's CIFAR-10: 100 clients, 10 a round, 1000 rounds, the 9-layer CNN",
        {
            "name": "cifar10",
            "data": {"name": "cifar10"},
            "model": {"name": "cnn9"},
            "method": {"name": "rofl", "t_pl": 100},
            "rounds": 1000,
            **_FEDERATION,
        },
    ),
}
