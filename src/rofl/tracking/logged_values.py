"""What trackers are told: numbers and settings of a run as a whole, nothing that names or shows a sample."""

import tomllib
from collections.abc import Mapping

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord, RunSummary

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


def of_round(record: RoundRecord) -> dict[str, float]:
    """Return a round as flat figures."""
    figures: dict[str, float] = {
        ALWAYS: record.seconds,
        "traffic/up": record.traffic.up,
        "traffic/down": record.traffic.down,
        "clients/dropped": len(record.dropped),
    }
    figures |= {f"training/{name}": value for name, value in record.metrics.items()}
    return figures if record.accuracy is None else {"accuracy/test": record.accuracy, **figures}


def of_summary(summary: RunSummary) -> dict[str, float]:
    """Return the outcome as flat figures; what is not known is absent."""
    content = summary.model_dump()
    figures = {f"summary/{name}": value for name, value in _numbers(content).items() if name in _SINGLE}
    figures |= {
        f"summary/{group}_{name}": value for group in _GROUPS for name, value in _numbers(content.get(group)).items()
    }
    achieved = summary.noise.achieved
    return figures if achieved is None else {**figures, "summary/noise_ratio": achieved}


def for_others(summary: RunSummary) -> dict[str, object]:
    """Return the summary without what may name a sample or a client.

    It is a list of what may pass, so that a new field stays at home until somebody thinks about it.
    """
    content = summary.model_dump()
    shared = {name: content[name] for name in (*_IDENTITY, *_SINGLE) if name in content}
    return shared | {group: _numbers(content[group]) for group in _GROUPS if content.get(group)}


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
    return f"{experiment.name}-{experiment.method_name}-{experiment.seed}"


def _numbers(group: Mapping[str, object] | None) -> dict[str, float]:
    return {name: value for name, value in (group or {}).items() if isinstance(value, int | float)}
