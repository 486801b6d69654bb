"""The round in which methods start to change labels, for presets."""

from rofl.core.settings import Settings


def self_labels(first: int) -> dict[str, Settings]:
    """Return the settings of all methods that change labels, so that they start in this round."""
    return {
        "rofl": {"t_pl": first},
        "joint": {"start": first},
        "selflearning": {"lr": 0.25, "lr_decay_every": 0, "start": first},  # its own rate is for a pre-trained network
        **federated_starts(first),
    }


def federated_starts(first: int) -> dict[str, Settings]:
    """Return the settings of federated methods that count rounds, for runs shorter than in their papers."""
    return {
        "fedcorr": {"start": first, "last_stage": 2 * first},
        "fednoro": {"start": first, "ramp": first},
        "fedelc": {"start": first, "ramp": first},
        "feddiv": {"start": first},
        "fedgr": {"start": first},
        "fedfixer": {"start": first, "beta_ramp": max(1, first // 2)},
    }
