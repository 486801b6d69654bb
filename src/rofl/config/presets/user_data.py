"""Settings for data of a user's own, chosen by what is found there."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets.preset import Preset
from rofl.config.presets.quick import SELF_LABELS
from rofl.config.schema import Experiment, parse_experiment
from rofl.data import Dataset
from rofl.data.user import Progress, load_user_data
from rofl.data.user.names import safe_names

_COHORT = 10  # clients a round at most
_CLIENTS, _SHARE = 10, 20  # where the data names none: at most so many, with so many samples each at least
_BATCHES, _SMALLEST, _LARGEST = 4, 8, 50  # so many batches make a client's epoch, of so many samples
_SMALL_SIDE = 16  # pixels up to which the small network will do
_NONE: Mapping[str, Any] = {}


def from_data(path: str | Path, *, progress: Progress | None = None, **changes: Any) -> Experiment:
    """An experiment on data of your own, with all settings chosen by what is found there.

    Args:
        path: a folder `<client>/<class>/*.png` or `<class>/*.png`, a manifest or a table (.csv, .parquet), or an .npz.
        progress: is told how many images are decoded, and of how many.
        changes: any setting; dots in keys are written as two underscores, as in `data__test_path="tests"`.
    """
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    if "method" in dotted:
        dotted["method.name"] = dotted.pop("method")
    return choose_for_data(path, dotted, progress=progress)[0]


def choose_for_data(
    path: str | Path, changes: Mapping[str, Any], base: Mapping[str, Any] = _NONE, progress: Progress | None = None
) -> tuple[Experiment, Dataset]:
    """The experiment and its images.

    Args:
        path: where the data lies.
        changes: settings with dotted keys, which count more than all others.
        base: settings of a file, which count more than what is chosen here.
        progress: is told how many images are decoded.
    """
    places = {key: _absolute(changes[key]) for key in ("data.test_path",) if changes.get(key)}
    dotted = {**changes, "data.path": _absolute(path), **places}  # a run may be resumed from another folder
    said = apply_overrides(base, dotted)
    spec = parse_experiment({"data": said["data"]}).data
    images = load_user_data(replace(spec.source, fingerprint=""), progress)
    dotted = {"data.fingerprint": images.fingerprint, **dotted}
    found, named = _found(images, said)
    clients = said.get("clients", named or max(1, min(_CLIENTS, len(images.train_labels) // _SHARE)))
    chosen = choose_settings(found, said, spec.title, clients)
    chosen["data"] = {**chosen["data"], "partition": "natural" if named else "iid"}
    return parse_experiment(apply_overrides(_over(chosen, base), dotted)), images


@dataclass(frozen=True)
class DataSummary:
    """What the choice of settings depends on."""

    sizes: list[int]  # samples of each client that the data names; one number where it names none
    shape: tuple[int, int, int]  # channels, height, width
    is_table: bool = False


def choose_settings(found: DataSummary, said: Mapping[str, Any], title: str, clients: int) -> dict[str, Any]:
    """Settings that suit the data, for the method that `said` names."""
    method = said.get("method", {})
    return _preset(found, clients, title).for_method(method.get("name") if isinstance(method, Mapping) else None)


def _found(images: Dataset, said: Mapping[str, Any]) -> tuple[DataSummary, int]:
    """What there is, and over how many clients it goes; `said` are the settings that somebody gave."""
    named = len(images.clients) if said["data"].get("partition", "natural") == "natural" else 0
    total = len(images.train_labels)
    sizes = images.owners.bincount(minlength=named).tolist() if named and images.owners is not None else [total]
    return DataSummary(sizes, images.shape, images.is_table), named


def _preset(found: DataSummary, clients: Any, title: str) -> Preset:
    """All that depends on the data."""
    counted = clients if isinstance(clients, int) and clients > 0 else 1  # a wrong one is refused later, in words
    named = len(found.sizes) > 1
    size = int(median(found.sizes)) if named else found.sizes[0] // counted
    channels, side, _ = found.shape
    model: dict[str, Any] = {"name": "small"} if side <= _SMALL_SIDE else {"name": "cnn9", "width": 0.25}
    seen: dict[str, Any] = {} if found.is_table else {"side": side, "channels": channels}
    return Preset(
        f"{title}: own data",
        {
            "name": safe_names([title])[0],
            "data": seen,
            "noise": {"ratio": 0.0},
            "model": {"name": "mlp"} if found.is_table else model,
            "method": {"lr": 0.1, "batch": max(_SMALLEST, min(_LARGEST, size // _BATCHES))},
            "rounds": 30,
            "clients": clients,
            "cohort": min(clients, _COHORT) if isinstance(clients, int) else _COHORT,
        },
        SELF_LABELS,
    )


def _over(chosen: Mapping[str, Any], base: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with those of a file put over them, table by table."""
    merged = dict(chosen)
    for key, value in base.items():
        below = merged.get(key)
        merged[key] = {**below, **value} if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _absolute(path: str | Path) -> str:
    return str(Path(path).expanduser().absolute())
