"""What trackers are told: numbers and settings of a run as a whole, nothing that names or shows a sample."""

import tomllib
from collections.abc import Mapping
from typing import Any

from rofl.config.schema import Experiment

ALWAYS = "seconds/round"  # every round has it, so it tells which rounds a tracker holds
_IDENTITY = ("name", "method", "dataset", "noise", "rounds", "seed", "versions", "digest")
_SINGLE = (
    "test_accuracy",
    "best_accuracy",
    "final_accuracy",
    "seconds",
    "seconds_per_round",
    "bytes_up",
    "bytes_down",
    "centroid_share",
    "dropped",
)
_GROUPS = ("detection", "audit", "estimated")  # of these only the numbers: `estimated` has a list of clients too


def of_round(entry: Mapping[str, Any]) -> dict[str, float]:
    """A line of metrics.jsonl as flat figures."""
    traffic = entry["traffic"]
    figures = {
        ALWAYS: entry["seconds"],
        "traffic/up": traffic["up_model"] + traffic["up_extra"],
        "traffic/down": traffic["down_model"] + traffic["down_extra"],
        "clients/dropped": len(entry["dropped"]),
    }
    figures |= {f"training/{name}": value for name, value in entry["metrics"].items()}
    return figures if entry["accuracy"] is None else {"accuracy/test": entry["accuracy"], **figures}


def of_summary(summary: Mapping[str, Any]) -> dict[str, float]:
    """The outcome as flat figures; what is not known is absent."""
    figures = {f"summary/{name}": value for name, value in _numbers(summary).items() if name in _SINGLE}
    figures |= {
        f"summary/{group}_{name}": value for group in _GROUPS for name, value in _numbers(summary.get(group)).items()
    }
    achieved = summary["noise"]["achieved"]
    return figures if achieved is None else {**figures, "summary/noise_ratio": achieved}


def for_others(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary without what may name a sample or a client; a list of what may pass, so that news stays at home."""
    shared = {name: summary[name] for name in (*_IDENTITY, *_SINGLE) if name in summary}
    return shared | {group: _numbers(summary[group]) for group in _GROUPS if summary.get(group)}


def settings(experiment: Experiment) -> dict[str, bool | float | str]:
    """Dotted keys as `--set` takes them.

    >>> settings(Experiment())["noise.ratio"]
    0.4
    """
    flat: dict[str, bool | float | str] = {}
    for key, value in tomllib.loads(experiment.toml()).items():
        inner = {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
        flat |= {name: one if isinstance(one, bool | int | float | str) else str(one) for name, one in inner.items()}
    return flat


def title(experiment: Experiment) -> str:
    """The name of a run among others.

    >>> title(Experiment())
    'custom-rofl-0'
    """
    return f"{experiment.name}-{experiment.method['name']}-{experiment.seed}"


def _numbers(group: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: value for name, value in (group or {}).items() if isinstance(value, int | float)}
