"""Resolves the network of the settings: finds its files, and fingerprints its frozen weights."""

from dataclasses import replace
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.core.rng import derive
from rofl.data.dataset import Dataset
from rofl.data.pretrained_weights import is_plain_name, network_folder, weights_file
from rofl.data.transforms import user_transform
from rofl.data.user import count_features, parse_columns
from rofl.errors import UserError
from rofl.models.fit_inputs import NO_SCALING, PixelScaling
from rofl.models.hf_network import PREFIX, HubConfig
from rofl.models.model_registry import ForeignInputs, ModelSpec
from rofl.models.pretrained import backbone_digest
from rofl.simulation.network_spec import NetworkSpec


def network_spec(experiment: Experiment, images: Dataset, data_dir: Path | None = None) -> NetworkSpec:
    """Return the network for these samples.

    Args:
        experiment: the network's name and width, and the seed of its weights.
        images: the data set, for the shape of an input, its scaling and the classes.
        data_dir: the folder of published data sets, with `weights` and `networks` in it; $ROFL_DATA if None.

    Raises:
        UserError: the weights or the folder of the settings do not exist.
    """
    scaling = PixelScaling(images.transform.mean, images.transform.std)
    return _with_weights(_spec(experiment, images.shape, len(images.classes), scaling, data_dir), experiment, data_dir)


def network_at_sites(experiment: Experiment, data_dir: Path | None = None) -> NetworkSpec:
    """Return the network for a federation, whose samples are at the sites.

    Args:
        experiment: the settings that all sites agreed on.
        data_dir: as in `network_spec`.
    """
    data = experiment.data
    if data.columns:
        shape = (count_features(parse_columns(data.columns)), 1, 1)
        return _with_weights(_spec(experiment, shape, len(data.classes), NO_SCALING, data_dir), experiment, data_dir)
    form = user_transform(data.channels, data.side)
    shape = (data.channels, data.side, data.side)
    network = _spec(experiment, shape, len(data.classes), PixelScaling(form.mean, form.std), data_dir)
    return _with_weights(network, experiment, data_dir)


def network_for_shape(experiment: Experiment, shape: tuple[int, int, int], classes: int) -> NetworkSpec:
    """Return the network for samples of a shape; no weight file is read, and scaling does not matter.

    Args:
        experiment: the settings.
        shape: channels, height and width.
        classes: the number of classes.
    """
    return _spec(experiment, shape, classes, NO_SCALING, None)


def settle_network(experiment: Experiment, network: NetworkSpec) -> tuple[Experiment, NetworkSpec]:
    """Return settings and network with absolute paths and the fingerprint of the frozen weights.

    Args:
        experiment: the settings.
        network: the network of these settings.

    Raises:
        UserError: the settings already have the fingerprint of other weights.
    """
    spec = experiment.model
    changes: dict[str, str] = {}
    if spec.weights and spec.weights != "imagenet" and not is_plain_name(spec.weights):
        changes["weights"] = str(Path(network.weights).absolute())
    if spec.name.startswith(PREFIX) and not is_plain_name(spec.name.removeprefix(PREFIX)):
        changes["name"] = PREFIX + str(Path(spec.name.removeprefix(PREFIX)).expanduser().absolute())
    if spec.keeps_base:
        changes["base"] = spec.base or backbone_digest(network.build_base())
        network = replace(network, base=changes["base"])
    if not changes:
        return experiment, network
    settled = experiment.model_copy(update={"model": spec.model_copy(update=changes)})
    return settled, replace(network, name=settled.model.name)


def _spec(
    experiment: Experiment,
    shape: tuple[int, int, int],
    classes: int,
    scaling: PixelScaling,
    data_dir: Path | None,
) -> NetworkSpec:
    spec = experiment.model
    return NetworkSpec(
        name=spec.name,
        shape=shape,
        classes=classes,
        width=spec.width,
        seed=derive(experiment.seed, "network"),
        freeze=spec.freeze,
        lora=spec.lora,
        base=spec.base,
        foreign=_foreign(spec, scaling, data_dir),
    )


def _with_weights(network: NetworkSpec, experiment: Experiment, data_dir: Path | None) -> NetworkSpec:
    """Return the network with the file that its weights start from.

    Raises:
        UserError: there is no such file, or no file is named for frozen weights.
    """
    spec = experiment.model
    if spec.keeps_base and spec.starts_at_random:
        key = "freeze" if spec.freeze else "lora"
        raise UserError(
            f"model.{key} keeps the weights of {spec.name}, which would start at random.", "model.weights=FILE"
        )
    return replace(network, weights=str(weights_file(spec.weights, data_dir)) if spec.weights else "")


def _foreign(spec: ModelSpec, scaling: PixelScaling, data_dir: Path | None) -> ForeignInputs:
    """Return the arguments that timm and Hugging Face networks need."""
    if not spec.name.startswith(PREFIX):
        return ForeignInputs(scaling) if spec.name.startswith("timm:") else ForeignInputs()
    name = spec.name.removeprefix(PREFIX)
    folder = network_folder(name, data_dir)
    at_random = Path(name).name == "config.json"
    if not at_random and not spec.weights and not any(folder.glob("model*.safetensors")):
        raise UserError(
            f"There are no weights in {folder}: it has no model.safetensors, and nothing is downloaded.",
            f"model.name={PREFIX}{folder}/config.json to start at random",
        )
    config = HubConfig.read(folder).to_json()
    return ForeignInputs(scaling, config, "" if at_random or spec.weights else str(folder))
