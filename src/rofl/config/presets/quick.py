"""Presets that finish on a laptop within minutes."""

from rofl.config.presets.preset_settings import Preset
from rofl.core.settings import Settings


def self_labels(first: int) -> dict[str, Settings]:
    """Return the settings of all methods that change labels, which do so from this round on."""
    return {
        "rofl": {"t_pl": first},
        "joint": {"start": first},
        "selflearning": {"lr": 0.25, "lr_decay_every": 0, "start": first},  # its own rate is for a pre-trained network
        **federated_starts(first),
    }


def federated_starts(first: int) -> dict[str, Settings]:
    """Return the settings of the federated methods that count rounds, for runs shorter than their authors'."""
    return {
        "fedcorr": {"start": first, "last_stage": 2 * first},
        "fednoro": {"start": first, "ramp": first},
        "fedelc": {"start": first, "ramp": first},
        "feddiv": {"start": first},
        "fedgr": {"start": first},
        "fedfixer": {"start": first, "beta_ramp": max(1, first // 2)},
    }


SELF_LABELS = self_labels(10)  # a third into the run, as the paper's MNIST


def _lite(about: str, data: str, name: str | None = None, noise: Settings | None = None) -> Preset:
    """Return a preset of 10,000 real images and the paper's network at 1/8 width.

    Args:
        about: What the images are.
        data: The data set.
        name: The preset's name; `<data>-lite` where absent.
        noise: The settings of the noise; the defaults where absent.
    """
    return Preset(
        f"{about}, 20 clients, 5 a round, the CNN at 1/8 width, 30 rounds: about 5 minutes on 2 cores",
        {
            "name": name or f"{data}-lite",
            "data": {"name": data, "train": 10_000},
            "noise": noise or {},
            "model": {"name": "cnn9", "width": 0.125},
            "rounds": 30,
            "clients": 20,
            "cohort": 5,
            "evaluate_every": 5,
        },
        SELF_LABELS,
    )


QUICK = {
    "digits": Preset(
        "scikit-learn's digits, 20 clients, 10 a round, 40 rounds: about half a minute on 2 cores",
        {
            "name": "digits",
            "data": {"name": "digits"},
            "model": {"name": "small"},
            "method": {"lr": 0.1, "batch": 20},
            "rounds": 40,
            "clients": 20,
            "cohort": 10,
        },
        {**SELF_LABELS, "selflearning": {"lr_decay_every": 0, "start": 10}},
    ),
    "mnist-lite": _lite("10,000 MNIST images", "mnist"),
    "cifar10-lite": _lite("10,000 CIFAR-10 images", "cifar10"),
    "cifar10n-lite": _lite(
        "10,000 CIFAR-10 images with people's own wrong labels", "cifar10", "cifar10n-lite", {"kind": "human"}
    ),
}
