"""Settings for user data, chosen from its size, its shape and its clients."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from rofl.config.overrides import apply_overrides
from rofl.config.presets.effort import FROZEN_SIDE, Effort, frozen_pixels, pixel_budget, run_size
from rofl.config.presets.preset_settings import Preset, self_labels
from rofl.config.presets.quick import SELF_LABELS
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.settings import Settings
from rofl.data import Dataset
from rofl.data.in_memory.load_object import as_dataset
from rofl.data.pretrained_weights import network_folder
from rofl.data.specs import IN_MEMORY
from rofl.data.user import Progress, load_user_data
from rofl.data.user.names import safe_names
from rofl.models.hf_network import PREFIX

_MIN_PATIENCE = 10  # rounds
_MAX_COHORT = 10  # clients a round
_MAX_CLIENTS, _MIN_SAMPLES = 10, 20  # of data without clients: the most clients, and the least samples of each
_BATCHES, _MIN_BATCH, _MAX_BATCH = 12, 8, 32  # batches in a client's epoch, and the samples of one
_METHOD = "rofl-plus"  # the noise ratio and the difficulty of the data are unknown
_NO_SETTINGS: Settings = {}
_FORM = ("data.side", "data.channels", "data.tokenizer")  # how samples in memory are read


def from_data(
    path: object, *, progress: Progress | None = None, effort: Effort = "default", **changes: Any
) -> Experiment:
    """Return an experiment on user data, with settings chosen for it.

    Args:
        path: a folder `<client>/<class>/*.png` or `<class>/*.png`, a manifest or a table (.csv, .parquet), an .npz, or
            a Hugging Face folder's `save_to_disk`; or an object that `rofl.as_dataset` accepts; pass the same
            object to `rofl.run` as `data`.
        progress: called with the numbers of decoded images and of all images.
        effort: the size of the run: "quick", "default" (about 10 minutes on two cores) or "thorough".
        changes: any settings, with two underscores for the dot of a key, as in `data__test_path="tests"`.

    Raises:
        UserError: the data cannot be used, or a setting does not fit.
    """
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    if "method" in dotted:
        dotted["method.name"] = dotted.pop("method")
    if isinstance(path, str | Path):
        return choose_for_data(path, dotted, progress=progress, effort=effort)[0]
    dotted |= tokenizer_setting(apply_overrides({}, dotted))
    spec = parse_experiment(apply_overrides({}, {key: dotted[key] for key in dotted if key in _FORM})).data
    images = as_dataset(path, side=spec.side, channels=spec.channels, tokenizer=spec.tokenizer)
    return choose_for_dataset(images, dotted, effort)


def choose_for_data(
    path: str | Path,
    changes: Settings,
    base: Settings = _NO_SETTINGS,
    progress: Progress | None = None,
    effort: Effort = "default",
) -> tuple[Experiment, Dataset]:
    """Return the experiment for user data, and the data itself.

    Args:
        path: the path of the data.
        changes: settings with dotted keys; they override all others.
        base: settings of a file, in tables; they override the choices made here.
        progress: called with the numbers of decoded images and of all images.
        effort: how large the run is.
    """
    test_path = {key: _absolute(changes[key]) for key in ("data.test_path",) if changes.get(key)}
    dotted = {**changes, "data.path": _absolute(path), **test_path}  # a run may be resumed from another folder
    dotted |= tokenizer_setting(apply_overrides(base, dotted))
    given = apply_overrides(base, dotted)
    frozen = _is_frozen(given)
    most_pixels = frozen_pixels(effort) if frozen else pixel_budget(effort)
    spec = parse_experiment({"data": given["data"]}).data
    source = replace(spec.source, fingerprint="", most_pixels=most_pixels)
    if frozen:
        source = replace(source, most_side=FROZEN_SIDE)
    images = load_user_data(source, progress)
    dotted = {"data.fingerprint": images.fingerprint, **dotted}
    chosen = _choose(images, given, spec.title, effort)
    return parse_experiment(apply_overrides(_merge_tables(chosen, base), dotted)), images


def choose_for_dataset(images: Dataset, changes: Settings, effort: Effort = "default") -> Experiment:
    """Return the experiment for samples in memory; `rofl.run(experiment, data=images)` runs it.

    Args:
        images: the samples.
        changes: settings with dotted keys; they override all others.
        effort: how large the run is.
    """
    given = apply_overrides({"data": {}}, changes)
    chosen = _choose(images, given, images.name, effort)
    memory = {**chosen["data"], "name": IN_MEMORY, "fingerprint": images.fingerprint}
    return parse_experiment(apply_overrides({**chosen, "data": memory}, changes))


def _choose(images: Dataset, given: Settings, title: str, effort: Effort) -> Settings:
    """Return settings for a data set, in tables.

    Args:
        images: the data set.
        given: the user's settings, in tables.
        title: the name of the data.
        effort: how large the run is.
    """
    summary, named = _summarize(images, given)
    clients = given.get("clients", named or max(1, min(_MAX_CLIENTS, len(images.train_labels) // _MIN_SAMPLES)))
    chosen = choose_settings(replace(summary, effort=effort), given, title, clients)
    return {**chosen, "data": {**chosen["data"], "partition": "natural" if named else "iid"}}


@dataclass(frozen=True)
class DataSummary:
    """The properties of data that the choice of settings depends on.

    Attributes:
        sizes: Samples of each client; the number of all samples if the data names no clients.
        shape: Channels, height and width of an image.
        is_table: Whether the samples are rows of a table, or texts.
        is_text: Whether they are texts.
        at_sites: Whether each client trains on its own machine.
        effort: How large the run is.
    """

    sizes: list[int]
    shape: tuple[int, int, int]
    is_table: bool = False
    is_text: bool = False
    at_sites: bool = False
    effort: Effort = "default"


def choose_settings(summary: DataSummary, given: Settings, title: str, clients: int) -> Settings:
    """Return settings for user data, in tables.

    Args:
        summary: Sizes and shape of the data.
        given: The user's settings, which name the method.
        title: The name of the data.
        clients: The number of clients.
    """
    method, model = (given.get(key, {}) for key in ("method", "model"))
    chosen = _make_preset(summary, clients, title).for_method(
        method.get("name") if isinstance(method, Mapping) else None
    )
    name = model.get("name", "") if isinstance(model, Mapping) else ""
    if ":" in str(name):  # networks of other packages have their own width
        return {**chosen, "model": {key: value for key, value in chosen["model"].items() if key != "width"}}
    return chosen


def _summarize(images: Dataset, given: Settings) -> tuple[DataSummary, int]:
    """Return the summary of user data and the number of its clients; 0 if another partition is set."""
    named = len(images.clients) if given["data"].get("partition", "natural") == "natural" else 0
    total = len(images.train_labels)
    sizes = images.owners.bincount(minlength=named).tolist() if named and images.owners is not None else [total]
    return DataSummary(sizes, images.shape, images.is_table, images.is_text), named


def _make_preset(summary: DataSummary, clients: Any, title: str) -> Preset:
    """Return a preset for user data: the network, the batch size and the federation."""
    counted = clients if isinstance(clients, int) and clients > 0 else 1  # `parse_experiment` refuses a wrong one
    cohort = min(counted, _MAX_COHORT)
    named = len(summary.sizes) > 1
    size = int(median(summary.sizes)) if named else summary.sizes[0] // counted
    settings: dict[str, Any] = {
        "name": safe_names([title])[0],
        "noise": {"ratio": 0.0},
        "clients": clients,
        "cohort": cohort if isinstance(clients, int) else _MAX_COHORT,
        "guard": "act",
    }
    method = {"name": _METHOD, "lr": 0.1, "batch": max(_MIN_BATCH, min(_MAX_BATCH, size // _BATCHES))}
    if summary.is_table:
        settings |= {
            "data": {},
            "model": {"name": "text" if summary.is_text else "mlp"},
            "rounds": 30,
            "patience": _patience(30),
            "method": method,
        }
        return Preset(f"{title}: user data", settings, SELF_LABELS)
    channels, side, _ = summary.shape
    if summary.at_sites:
        chosen = run_size(side, max(summary.sizes), summary.effort, cores=1)
    else:
        chosen = run_size(side, sum(summary.sizes) * cohort / counted, summary.effort)
    settings |= {"data": {"side": side, "channels": channels}, "model": chosen.model}
    settings |= {"rounds": chosen.rounds, "patience": _patience(chosen.rounds)}
    settings["method"] = {**method, "epochs": chosen.epochs}
    return Preset(f"{title}: user data", settings, self_labels(chosen.relabel_round))


def _patience(rounds: int) -> int:
    """Return the number of rounds without an improvement after which a run stops."""
    return max(_MIN_PATIENCE, 2 * rounds // 3)


def _merge_tables(chosen: Settings, base: Settings) -> Settings:
    """Return chosen settings, overridden table by table by those of a file."""
    merged = dict(chosen)
    for key, value in base.items():
        table = merged.get(key)
        merged[key] = {**table, **value} if isinstance(table, Mapping) and isinstance(value, Mapping) else value
    return merged


def _is_frozen(given: Settings) -> bool:
    model = given.get("model")
    return isinstance(model, Mapping) and model.get("freeze") is True


def tokenizer_setting(given: Settings) -> dict[str, str]:
    """Return the path of the tokenizer in the folder of a Hugging Face network, unless the settings name one."""
    name = given.get("model", {}).get("name", "") if isinstance(given.get("model"), Mapping) else ""
    set_already = isinstance(given.get("data"), Mapping) and given["data"].get("tokenizer")
    if not isinstance(name, str) or not name.startswith(PREFIX) or set_already:
        return {}
    folder = network_folder(name.removeprefix(PREFIX))
    return {"data.tokenizer": str(folder.absolute())} if (folder / "tokenizer.json").is_file() else {}


def _absolute(path: str | Path) -> str:
    return str(Path(path).expanduser().absolute())
