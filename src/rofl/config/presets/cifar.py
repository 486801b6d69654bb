"""CIFAR-10 on two cores: network, steps and schedule chosen for accuracy per unit of time, the same for all methods.

docs/decisions/0016-cifar10-on-two-cores.md records the alternatives.
"""

from rofl.config.presets.preset_settings import Preset, self_labels
from rofl.core.settings import Settings

_SGD = {  # of all methods: small steps, a warm-up, and a rate that falls to 0
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "batch": 32,
    "lr_schedule": "linear",
    "lr_warmup": 0.1,
}
_LITE_ROUNDS, _MEDIUM_ROUNDS = 80, 200  # 100 passes over each image; plain FedAvg memorizes wrong labels
_PLUS = {"server_step": 1.0, "caution": 2.0}  # the rate falls already; belief comes sooner than by default
_RATE = {"lr": 0.05}
_START = 0.5  # the share of the rounds after which methods change labels; by then the model is right on most images


def _methods(rounds: int) -> dict[str, Settings]:
    """Return the hyper-parameters of each method for a run of this many rounds."""
    methods = {name: dict(own) for name, own in self_labels(round(_START * rounds)).items()}
    del methods["selflearning"]["lr"]
    return {**methods, "rofl-plus": _PLUS}


def _lite(name: str, about: str, noise: Settings) -> Preset:
    return Preset(
        f"{about}, 20,000 images, 20 clients, 5 a round, {_LITE_ROUNDS} rounds, fast CNN: about 15 minutes on 2 cores",
        {
            "name": name,
            "data": {"name": "cifar10", "train": 20_000},
            "noise": noise,
            "model": {"name": "cnn5", "width": 0.5},
            "method": {**_SGD, **_RATE, "epochs": 5},
            "rounds": _LITE_ROUNDS,
            "clients": 20,
            "cohort": 5,
            "evaluate_every": 5,
        },
        _methods(_LITE_ROUNDS),
    )


def _medium(name: str, about: str, noise: Settings, model: Settings | None = None) -> Preset:
    """Return a preset of the paper's federation.

    Args:
        name: The preset's name.
        about: What the images are.
        noise: The settings of the noise.
        model: The network; the fast one if None.
    """
    time = "4 hours" if model else "40 minutes"
    return Preset(
        f"{about}, 100 clients, 10 a round, {_MEDIUM_ROUNDS} rounds: an estimated {time} on 2 cores",
        {
            "name": name,
            "data": {"name": "cifar10"},
            "noise": noise,
            "model": model or {"name": "cnn5", "width": 0.5},
            "method": {**_SGD, **_RATE, "epochs": 5},
            "rounds": _MEDIUM_ROUNDS,
            "clients": 100,
            "cohort": 10,
            "evaluate_every": 5,
        },
        _methods(_MEDIUM_ROUNDS),
    )


_HUMAN = {"kind": "human"}
_CNN9 = {"name": "cnn9", "width": 0.25}  # separates the effect of the network from that of the method
CIFAR = {
    "cifar10-lite": _lite("cifar10-lite", "CIFAR-10", {}),
    "cifar10n-lite": _lite("cifar10n-lite", "CIFAR-10 with people's own wrong labels", _HUMAN),
    "cifar10-medium": _medium("cifar10-medium", "CIFAR-10", {}),
    "cifar10-medium-cnn9": _medium("cifar10-medium-cnn9", "CIFAR-10, the paper's CNN at 1/4 width", {}, _CNN9),
    "cifar10n-medium": _medium("cifar10n-medium", "CIFAR-10 with people's own wrong labels", _HUMAN),
}
