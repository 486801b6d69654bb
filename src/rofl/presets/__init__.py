"""Settings by name."""

from typing import Any

from rofl.config import Experiment, experiment, with_changes
from rofl.errors import unknown
from rofl.presets.base import Preset
from rofl.presets.own_data import own
from rofl.presets.quick import QUICK
from rofl.presets.single import PAPER

PRESETS: dict[str, Preset] = {**QUICK, **PAPER}


def find(name: str) -> Preset:
    """A preset by name, or an error with the nearest one."""
    if name not in PRESETS:
        raise unknown("preset", name, PRESETS)
    return PRESETS[name]


def preset(name: str, **changes: Any) -> Experiment:
    """An experiment from a preset, with changes: dots in keys are written as two underscores.

    >>> preset("digits", noise__ratio=0.6, seed=3).noise.ratio
    0.6
    """
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    if "method" in dotted:
        dotted["method.name"] = dotted.pop("method")
    return experiment(with_changes(find(name).for_method(dotted.get("method.name")), dotted))


__all__ = ["PRESETS", "Preset", "find", "own", "preset"]
