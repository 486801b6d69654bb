"""Presets that finish on a laptop within minutes."""

from rofl.config.presets.preset_settings import Preset, self_labels

SELF_LABELS = self_labels(10)  # a third into the run, as the paper's MNIST


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
    "mnist-lite": Preset(
        "10,000 MNIST images, 20 clients, 5 a round, the CNN at 1/8 width, 30 rounds: about 5 minutes on 2 cores",
        {
            "name": "mnist-lite",
            "data": {"name": "mnist", "train": 10_000},
            "model": {"name": "cnn9", "width": 0.125},
            "rounds": 30,
            "clients": 20,
            "cohort": 5,
            "evaluate_every": 5,
        },
        SELF_LABELS,
    ),
    "mnist-medium": Preset(
        "all of MNIST, 100 clients, 10 a round, the CNN at 1/8 width, 100 rounds: an estimated hour on 2 cores",
        {
            "name": "mnist-medium",
            "data": {"name": "mnist"},
            "model": {"name": "cnn9", "width": 0.125},
            "rounds": 100,
            "clients": 100,
            "cohort": 10,
            "evaluate_every": 5,
        },
        self_labels(30),  # "T_pl to 30 for MNIST"
    ),
}
