"""Methods, networks and data sets that a caller hands over as Python objects, put into an experiment."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from rofl.config.schema import Experiment, parse_experiment
from rofl.core.registry import Registry
from rofl.data.dataset import Dataset
from rofl.data.specs import IN_MEMORY
from rofl.errors import UserError
from rofl.methods import METHODS, Method
from rofl.models import MODELS


def with_components(
    experiment: Experiment, method: Method | None, model: Callable[..., Any] | None, dataset: Dataset | None
) -> Experiment:
    """Return the experiment with these objects in place of what it names.

    The settings then name the method's class and the model's factory as `package.module:name`, so that config.toml is
    complete and worker processes import the same code. Samples cannot be named: `data.name` becomes "memory", with
    their fingerprint, and whoever resumes the run hands the same samples over again.

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
    settings: dict[str, Any] = experiment.model_dump(exclude_none=True)
    if method is not None:
        if not is_dataclass(method) or isinstance(method, type):
            raise UserError(f"{method!r} is not an instance of a dataclass.", "@dataclass(frozen=True) and MyMethod()")
        settings["method"] = {"name": name_of(METHODS, type(method)), **asdict(method)}
    if model is not None:
        settings["model"] = {**settings["model"], "name": name_of(MODELS, model), "weights": ""}
    if dataset is not None:
        settings |= _data_settings(settings, dataset, keep_noise=experiment.data.name == IN_MEMORY)
    return parse_experiment(settings)


def name_of(registry: Registry[Any], thing: Any) -> str:
    """Return the name under which `registry.find` gives this object: a built-in one, or `package.module:name`.

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


def _data_settings(settings: Mapping[str, Any], dataset: Dataset, keep_noise: bool) -> dict[str, Any]:
    """Settings of samples in memory; labels that nobody vouches for get no noise on top."""
    kept = {key: value for key, value in settings["data"].items() if key not in ("path", "test_path", "name")}
    partition = kept["partition"]
    if dataset.owners is not None and partition in ("iid", "natural"):
        partition = "natural"
    data = {**kept, "name": IN_MEMORY, "fingerprint": dataset.fingerprint, "partition": partition}
    changed: dict[str, Any] = {"data": data}
    if partition == "natural":
        clients = len(dataset.clients)
        changed |= {"clients": clients, "cohort": min(settings["cohort"], clients)}
    if not dataset.truth_known and not keep_noise:
        changed["noise"] = {**settings["noise"], "ratio": 0.0, "client_spread": 0.0}
        method = dict(settings["method"])
        if method.get("tau") == "known" and method["name"] == "rofl":
            method["tau"] = "auto"  # nobody knows the noise ratio
        changed["method"] = method
    return changed
