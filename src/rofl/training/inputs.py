"""Prepares the inputs of a run: settings, data and network, some of which may be the caller's objects."""

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rofl.config.schema import Experiment, parse_experiment
from rofl.core.registry import Registry
from rofl.core.settings import Settings
from rofl.data.dataset import Dataset
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.in_memory.load_object import as_dataset
from rofl.data.specs import IN_MEMORY
from rofl.errors import UserError
from rofl.methods import METHODS, Method
from rofl.models import MODELS
from rofl.models.model_registry import takes_width
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.network_choice import network_spec

_NO_NOISE = {"ratio": 0.0, "client_spread": 0.0, "client_min": 0.0, "client_max": 0.0}
_MODEL_KINDS = {  # kinds of samples that each network accepts
    "text": ("text",),
    "mlp": ("table", "images"),
    "linear": ("table", "images"),
    "small": ("images",),
    "cnn5": ("images",),
    "cnn9": ("images",),
    "resnet50": ("images",),
}


def with_components(
    experiment: Experiment, method: Method | None, model: Callable[..., Any] | None, dataset: Dataset | None
) -> Experiment:
    """Return the experiment with the caller's objects in place of the names in it.

    The settings then name the method's class and the model's factory as `package.module:name`, so that config.toml is
    complete and worker processes import the same code. Samples cannot be named: `data.name` becomes "memory", with
    their fingerprint, and a resume needs the same samples again.

    Args:
        experiment: the settings.
        method: an instance of a frozen dataclass; None to keep the experiment's method.
        model: a factory `(shape, classes, width) -> torch.nn.Module`; None to keep the experiment's network.
        dataset: samples in memory; None to keep the experiment's data.

    Raises:
        UserError: an object cannot be imported by its name.
    """
    if method is None and model is None and dataset is None:
        return experiment
    settings = experiment.model_dump(exclude_none=True)
    if method is not None:
        if not is_dataclass(method) or isinstance(method, type):
            raise UserError(f"{method!r} is not an instance of a dataclass.", "@dataclass(frozen=True) and MyMethod()")
        settings["method"] = {"name": name_of(METHODS, type(method)), **asdict(method)}
    if model is not None:
        width = settings["model"]["width"] if takes_width(model) else 1.0  # chosen for another network
        settings["model"] = {**settings["model"], "name": name_of(MODELS, model), "weights": "", "width": width}
    if dataset is not None:
        settings |= _data_settings(settings, dataset, keep_noise=experiment.data.name == IN_MEMORY)
    return parse_experiment(settings)


def dataset_of(data: object, experiment: Experiment) -> Dataset:
    """Return the caller's samples as a data set, with the image size and tokenizer of the settings."""
    spec = experiment.data
    return as_dataset(data, side=spec.side, channels=spec.channels, tokenizer=spec.tokenizer)


def name_of(registry: Registry[Any], thing: Any) -> str:
    """Return the name by which `registry.find` returns this object: a built-in name, or `package.module:name`.

    Raises:
        UserError: it is a lambda or was defined inside a function, so that no process could import it.
    """
    for name, known in registry.items():
        if known is thing:
            return name
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "<unnamed>")
    if not module or "<" in name:
        raise UserError(
            f"The {registry.kind} {name} cannot be imported by its name.", "define it at the top of a module"
        )
    return f"{module}:{name}"


def _data_settings(settings: Settings, dataset: Dataset, keep_noise: bool) -> Settings:
    """Return the settings of samples in memory; no noise is added to labels that may already be wrong."""
    kept = {key: value for key, value in settings["data"].items() if key not in ("path", "test_path", "name")}
    partition = kept["partition"]
    if dataset.owners is not None and partition in ("iid", "natural"):
        partition = "natural"
    data = {**kept, "name": IN_MEMORY, "fingerprint": dataset.fingerprint, "partition": partition}
    changed: dict[str, object] = {"data": data}
    if partition == "natural":
        clients = len(dataset.clients)
        changed |= {"clients": clients, "cohort": min(settings["cohort"], clients)}
    if not dataset.truth_known and not keep_noise:
        changed["noise"] = {
            **settings["noise"],
            "ratio": 0.0,
            "client_spread": 0.0,
            "client_min": 0.0,
            "client_max": 0.0,
        }
        method = dict(settings["method"])
        if method.get("tau") == "known" and method["name"] == "rofl":
            method["tau"] = "auto"  # the noise ratio is unknown
        changed["method"] = method
    return changed


def load_inputs(
    experiment: Experiment, data_dir: Path | None, dataset: Dataset | None = None
) -> tuple[FederatedDataset, NetworkSpec]:
    """Return the federated data set and the network of an experiment.

    Args:
        experiment: the settings.
        data_dir: the folder of published data sets; $ROFL_DATA if None.
        dataset: samples that the caller has in memory, instead of those that the settings name.

    Raises:
        UserError: the data or the weights cannot be read, or the network does not fit the data.
    """
    federated, spec = load_federated(experiment.split, data_dir, dataset), experiment.model
    _check_kind(federated.images, spec.name)
    return federated, network_spec(experiment, federated.images, data_dir)


def _check_kind(images: Dataset, model: str) -> None:
    """Refuse a built-in network for samples of another kind; networks of other packages are not checked."""
    kind = "text" if images.is_text else "table" if images.is_table else "images"
    tokenizer = getattr(images.encoder, "tokenizer", "")
    if kind == "text" and (model.startswith("hf:") != bool(tokenizer)) and not (":" in model and tokenizer):
        needs = "takes the tokens of its own tokenizer" if model.startswith("hf:") else "takes words, not tokens"
        raise UserError(f"The model {model} {needs} (data.tokenizer).", "data.tokenizer=FOLDER, of the model hf:FOLDER")
    if model in _MODEL_KINDS and kind not in _MODEL_KINDS[model]:
        what = {"text": "A data set of texts", "table": "A table", "images": "A data set of images"}[kind]
        fits = next(name for name, kinds in _MODEL_KINDS.items() if kind in kinds)
        raise UserError(f"{what} does not fit the model {model}.", f"model.name={fits}")


def accuracy(logits: Tensor, truth: Tensor) -> float:
    """Return the accuracy in per cent of logits (n, K) by the true classes (n,)."""
    return float((logits.argmax(dim=1) == truth).double().mean() * 100)
