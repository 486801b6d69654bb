"""How large to run: tiny in minutes on embedded data, lite on 10,000 real images, paper as the paper did."""

import math
from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets import PRESETS, Preset
from rofl.config.schema import Experiment, parse_experiment
from rofl.reproduce.paper_table import PaperTable, Scale, ScaledBy, TableCell

_SCHEDULES = ("t_pl", "start")  # fields of methods that count rounds, and so shrink with them

_TINY = Preset(
    "digits, 20 clients, 5 a round, 20 rounds",
    {**PRESETS["digits"].settings, "name": "digits-tiny", "rounds": 20, "cohort": 5},
    {"rofl": {"t_pl": 7}, "joint": {"start": 7}, "selflearning": {"lr_decay_every": 0, "start": 7}},
)
_COVIDX_LITE = Preset(
    "the COVIDx sample, 5 clients, the CNN at 1/8 width",
    {
        **PRESETS["mnist-lite"].settings,
        "name": "covidx-lite",
        "data": {"name": "covidx_mini"},
        "noise": {"ratio": 0.0},
        "clients": 5,
    },
    PRESETS["mnist-lite"].methods,
)
_LITE = {
    "mnist": PRESETS["mnist-lite"],
    "cifar10": PRESETS["cifar10-lite"],
    "clothing1m": PRESETS["cifar10n-lite"],
    "covidx": _COVIDX_LITE,
}
_STAND_INS = {
    ("lite", "clothing1m"): "CIFAR-10 with people's own wrong labels (CIFAR-10N, worse) stands in for Clothing1M.",
    ("lite", "covidx"): "A sample of 273 images stands in for COVIDx.",
}


def preset_of(scale: Scale, data: str) -> Preset:
    """The settings that stand for one of the paper's data sets at a scale."""
    if scale == "tiny":
        return _TINY
    return _LITE[data] if scale == "lite" else PRESETS[data]


def substitution_note(scale: Scale, data: str) -> str:
    """A sentence about what takes the place of the paper's data set, or nothing."""
    if scale == "tiny":
        return "The embedded digits stand in for the paper's data set."
    return _STAND_INS.get((scale, data), "")


def cell_experiment(grid: PaperTable, cell: TableCell, scale: Scale, seed: int) -> Experiment | None:
    """What to run for a cell, or None where the scale has too few clients for it."""
    preset = preset_of(scale, grid.data)
    base = parse_experiment(preset.for_method(cell.method))
    changes = {key: _resolve(base, key, value) for key, value in cell.changes.items()}
    if changes.get("cohort", 0) > base.clients:
        return None
    if changes.get("setting") == "centralized":
        changes |= _same_effort(base)
    if changes.get("setting") == "federated":
        del changes["setting"]
    return parse_experiment(apply_overrides(preset.for_method(cell.method), {**changes, "seed": seed}))


def _resolve(base: Experiment, key: str, value: Any) -> Any:
    """A value at this scale."""
    if not isinstance(value, ScaledBy):
        return value
    return max(1, round(base.method[key.removeprefix("method.")] * value.factor))


def _same_effort(base: Experiment) -> dict[str, Any]:
    """As many passes over the data as the federated run makes; a round is then one pass."""
    passes = math.ceil(base.rounds * base.method["epochs"] * base.cohort / base.clients)
    shrink = passes / base.rounds
    schedules = {f"method.{name}": base.method[name] for name in _SCHEDULES if name in base.method}
    return {"rounds": passes, **{key: max(1, round(value * shrink)) for key, value in schedules.items()}}
