"""The paper's own settings for one run, from the supplement's section "Implementation details"."""

from rofl.config.presets.preset_settings import Preset, federated_starts

_FEDERATION = {"clients": 100, "cohort": 10}  # "the number of clients to 100, and 10 clients are selected"
_CLOTHING_NOISE = 0.3846  # "the overall noise ratio is approximately 38.46%"

PAPER = {
    "mnist": Preset(
        "the paper's MNIST: 100 clients, 10 a round, 100 rounds, the 9-layer CNN",
        {"name": "mnist", "data": {"name": "mnist"}, "model": {"name": "cnn9"}, "rounds": 100, **_FEDERATION},
        {
            "rofl": {"t_pl": 30},  # "T_pl to 30 for MNIST"
            "joint": {"start": 30},  # "start epoch 100" of a run of 100 rounds would change nothing: taken as T_pl
            "selflearning": {"lr": 0.25, "lr_decay_every": 0, "start": 30},  # not in the paper for this network
            **federated_starts(30),  # as T_pl; their authors' runs are longer
        },
    ),
    "cifar10": Preset(
        "the paper's CIFAR-10: 100 clients, 10 a round, 1000 rounds, the 9-layer CNN",
        {"name": "cifar10", "data": {"name": "cifar10"}, "model": {"name": "cnn9"}, "rounds": 1000, **_FEDERATION},
        {
            "rofl": {"t_pl": 100},  # "100 for CIFAR-10"
            "joint": {"start": 100},  # "start epoch to ... 100"
            "selflearning": {"lr": 0.25, "lr_decay_every": 0, "start": 100},  # not in the paper for this network
        },
    ),
    "clothing1m": Preset(
        "the paper's Clothing1M: 100 clients, 10 a round, 40 rounds, ResNet-50 from ImageNet weights",
        {
            "name": "clothing1m",
            "data": {"name": "clothing1m"},
            "noise": {"ratio": 0.0},  # its labels are wrong as they come
            "model": {"name": "resnet50", "weights": "imagenet"},
            "rounds": 40,
            **_FEDERATION,
        },
        {
            "plain": {"lr": 0.01, "lr_decay_every": 10},  # not stated: ours, as for "Ours"
            "coteaching": {
                "lr": 0.001,
                "lr_decay_every": 10,
                "warmup": 5,
                "tau": _CLOTHING_NOISE,
            },  # paragraph "Co-teaching"
            "joint": {"lr": 8e-4, "alpha": 2.4, "beta": 0.8, "start": 5},  # start is not stated: ours, as T_pl
            "selflearning": {"lr": 0.002, "lr_decay_every": 5},  # "0.002 and decreased by 10 every 5 epochs"
            "rofl": {"lr": 0.01, "lr_decay_every": 10, "t_pl": 5, "tau": _CLOTHING_NOISE},  # paragraph "Ours"
            **federated_starts(5),  # as T_pl
        },
    ),
    "covidx": Preset(
        "the paper's COVIDx: 100 medical centres, 10 a round; network and rounds are not stated there, so ours",
        {
            "name": "covidx",
            "data": {"name": "covidx"},
            "noise": {"ratio": 0.0},
            "model": {"name": "cnn9"},
            "rounds": 100,
            **_FEDERATION,
        },
        {"rofl": {"t_pl": 30}, "joint": {"start": 30}, **federated_starts(30)},
    ),
}
