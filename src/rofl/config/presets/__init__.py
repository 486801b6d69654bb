"""Settings by name."""

from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets.paper import PAPER
from rofl.config.presets.preset import Preset
from rofl.config.presets.quick import QUICK
from rofl.config.presets.user_data import from_data
from rofl.config.schema import Experiment, parse_experiment
from rofl.errors import unknown

PRESETS: dict[str, Preset] = {**QUICK, **PAPER}


def find_preset(name: str) -> Preset:
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
    return parse_experiment(apply_overrides(find_preset(name).for_method(dotted.get("method.name")), dotted))


__all__ = ["PRESETS", "Preset", "find_preset", "from_data", "preset"]
