"""Scales: "tiny" runs in minutes on embedded data, "lite" in minutes on real images, "paper" as in the paper.

"medium" is in between: the paper's images and clients, with a smaller network and fewer rounds; hours on two cores.
"""

import math
from collections.abc import Iterable
from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets import PRESETS, Preset
from rofl.config.presets.preset_settings import federated_starts
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings
from rofl.reproduce.paper_table import PaperTable, Scale, ScaledBy, TableCell

_ROUND_SETTINGS = ("t_pl", "start")  # hyper-parameters that count rounds

_TINY = Preset(
    "digits, 20 clients, 5 a round, 20 rounds",
    {**PRESETS["digits"].settings, "name": "digits-tiny", "rounds": 20, "cohort": 5},
    {
        "rofl": {"t_pl": 7},
        "joint": {"start": 7},
        "selflearning": {"lr_decay_every": 0, "start": 7},
        **federated_starts(7),
    },
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
_MEDIUM = {
    "mnist": PRESETS["mnist-medium"],
    "cifar10": PRESETS["cifar10-medium"],
    "clothing1m": PRESETS["cifar10n-medium"],
    "covidx": _COVIDX_LITE,
}
_SUBSTITUTIONS = {
    "clothing1m": "CIFAR-10 with people's own wrong labels (CIFAR-10N, worse) stands in for Clothing1M.",
    "covidx": "A sample of 273 images stands in for COVIDx.",
}


def scale_preset(scale: Scale, data: str) -> Preset:
    """Return the preset for one of the paper's data sets at a scale."""
    if scale == "tiny":
        return _TINY
    if scale == "medium":
        return _MEDIUM[data]
    return _LITE[data] if scale == "lite" else PRESETS[data]


def substitution_note(scale: Scale, data: str) -> str:
    """Return a note about the data set that replaces the paper's, or "" if it is the paper's."""
    if scale == "tiny":
        return "The embedded digits stand in for the paper's data set."
    return _SUBSTITUTIONS.get(data, "") if scale != "paper" else ""


def cell_experiment(table: PaperTable, cell: TableCell, scale: Scale, seed: int) -> Experiment | None:
    """Return the experiment of a cell.

    Args:
        table: The table of the cell, which says the data set.
        cell: The cell.
        scale: The scale of the run.
        seed: The seed of the run.

    Returns:
        The experiment; None if the scale has fewer clients than the cell asks for in a round.
    """
    preset = scale_preset(scale, table.data)
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
    """Return a setting of a cell at this scale: `ScaledBy` becomes a multiple of the preset's value."""
    if not isinstance(value, ScaledBy):
        return value
    return max(1, round(base.method[key.removeprefix("method.")] * value.factor))


def _same_effort(base: Experiment) -> Settings:
    """Return the settings of a centralized run with as many epochs over the data as the federated run.

    A round is then one epoch; settings that count rounds are scaled.
    """
    passes = math.ceil(base.rounds * base.method.get("epochs", 1) * base.cohort / base.clients)
    return fewer_rounds(base, passes, _ROUND_SETTINGS)


def fewer_rounds(base: Experiment, rounds: int, names: Iterable[str]) -> Settings:
    """Return the settings, with dotted keys, of a run of fewer rounds.

    Args:
        base: The run.
        rounds: The new number of rounds.
        names: Hyper-parameters that count rounds, which are scaled; 0 and non-numbers are kept.
    """
    shrink = rounds / base.rounds
    found = {name: base.method.get(name) for name in names}
    counted = {name: value for name, value in found.items() if value and not isinstance(value, str)}
    return {"rounds": rounds, **{f"method.{name}": max(1, round(value * shrink)) for name, value in counted.items()}}
