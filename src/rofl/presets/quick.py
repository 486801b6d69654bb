"""Reduced settings that finish on a laptop."""

from typing import Any

from rofl.presets.single import Preset


def _lite(data: str) -> dict[str, Any]:
    """10,000 real images and the paper's network at 1/8 width."""
    return {
        "name": f"{data}-lite",
        "data": {"name": data, "train": 10_000},
        "model": {"name": "cnn9", "width": 0.125},
        "method": {"name": "rofl", "t_pl": 10},
        "rounds": 30,
        "clients": 20,
        "cohort": 5,
        "evaluate_every": 5,
    }


QUICK = {
    "digits": Preset(
        "scikit-learn's digits, 20 clients, 10 a round, 40 rounds: about half a minute on 2 cores",
        {
            "name": "digits",
            "data": {"name": "digits"},
            "model": {"name": "small"},
            "method": {"name": "rofl", "lr": 0.1, "batch": 20, "t_pl": 10},
            "rounds": 40,
            "clients": 20,
            "cohort": 10,
        },
    ),
    "mnist-lite": Preset(
        "10,000 MNIST images, 20 clients, 5 a round, the CNN at 1/8 width, 30 rounds: about 5 minutes on 2 cores",
        _lite("mnist"),
    ),
    "cifar10-lite": Preset(
        "10,000 CIFAR-10 images, 20 clients, 5 a round, the CNN at 1/8 width, 30 rounds: about 6 minutes on 2 cores",
        _lite("cifar10"),
    ),
}
