"""Presets: named settings of the paper, quick ones, and settings chosen for user data."""

from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets.cifar import CIFAR
from rofl.config.presets.paper import PAPER
from rofl.config.presets.preset_settings import Preset
from rofl.config.presets.quick import QUICK
from rofl.config.presets.user_data import from_data
from rofl.config.schema import Experiment, parse_experiment
from rofl.errors import unknown

PRESETS: dict[str, Preset] = {**QUICK, **CIFAR, **PAPER}


def find_preset(name: str) -> Preset:
    """Return the preset of a name.

    Raises:
        UserError: There is no such preset; the nearest name is suggested.
    """
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def preset(name: str, **changes: Any) -> Experiment:
    """Return the experiment of a preset, with changes.

    Args:
        name: A key of `PRESETS`.
        changes: Any settings, with two underscores for the dot of a key; `method="plain"` is short for `method__name`.

    Raises:
        UserError: A name is unknown, or a value does not fit.

    >>> preset("digits", noise__ratio=0.6, seed=3).noise.ratio
    0.6
    """
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    if "method" in dotted:
        dotted["method.name"] = dotted.pop("method")
    return parse_experiment(apply_overrides(find_preset(name).for_method(dotted.get("method.name")), dotted))


__all__ = ["PRESETS", "Preset", "find_preset", "from_data", "preset"]
