"""The values that trackers log: numbers and settings of the whole run, nothing that identifies a sample."""

import tomllib
from collections.abc import Mapping

from rofl.config.schema import Experiment
from rofl.training.records import RoundRecord, RunSummary

EVERY_ROUND = "seconds/round"  # a value of every round: its steps show which rounds a tracker has
_FACTS = ("name", "method", "dataset", "noise", "rounds", "seed", "versions", "digest")
_NUMBERS = (
    "test_accuracy",
    "best_accuracy",
    "final_accuracy",
    "model_accuracy",
    "seconds",
    "seconds_per_round",
    "bytes_up",
    "bytes_down",
    "centroid_share",
    "dropped",
)
_GROUPS = ("detection", "audit", "estimated")  # only the numbers in them: `estimated` also names clients


def round_values(record: RoundRecord) -> dict[str, float]:
    """Return the values of a round, by names such as "traffic/up"; accuracy only if it was measured."""
    values: dict[str, float] = {
        EVERY_ROUND: record.seconds,
        "traffic/up": record.traffic.up,
        "traffic/down": record.traffic.down,
        "clients/dropped": len(record.dropped),
    }
    values |= {f"training/{name}": value for name, value in record.metrics.items()}
    if record.held_out is not None and record.held_out.agreement is not None:
        values["accuracy/agreement"] = 100 * record.held_out.agreement
    return values if record.accuracy is None else {"accuracy/test": record.accuracy, **values}


def summary_values(summary: RunSummary) -> dict[str, float]:
    """Return the known values of a summary, by names such as "summary/test_accuracy"."""
    content = summary.model_dump()
    values = {f"summary/{name}": value for name, value in _numbers(content).items() if name in _NUMBERS}
    values |= {
        f"summary/{group}_{name}": value for group in _GROUPS for name, value in _numbers(content.get(group)).items()
    }
    achieved = summary.noise.achieved
    return values if achieved is None else {**values, "summary/noise_ratio": achieved}


def public_summary(summary: RunSummary) -> dict[str, object]:
    """Return the summary without fields that may identify a sample or a client.

    Public fields are listed explicitly, so a new field stays private until it is added.
    """
    content = summary.model_dump()
    shared = {name: content[name] for name in (*_FACTS, *_NUMBERS) if name in content}
    return shared | {group: _numbers(content[group]) for group in _GROUPS if content.get(group)}


def setting_values(experiment: Experiment) -> dict[str, bool | float | str]:
    """Return all settings with dotted keys, as in `--set`; lists become text.

    >>> setting_values(Experiment())["noise.ratio"]
    0.4
    """
    flat: dict[str, bool | float | str] = {}
    for key, value in tomllib.loads(experiment.toml()).items():
        inner = {f"{key}.{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
        flat |= {name: one if isinstance(one, bool | int | float | str) else str(one) for name, one in inner.items()}
    return flat


def run_title(experiment: Experiment) -> str:
    """Return the name of a run in a tracker.

    >>> run_title(Experiment())
    'custom-rofl-0'
    """
    return f"{experiment.name}-{experiment.method_name}-{experiment.seed}"


def _numbers(group: Mapping[str, object] | None) -> dict[str, float]:
    """Return the entries that are numbers."""
    return {name: value for name, value in (group or {}).items() if isinstance(value, int | float)}
