"""What a run needs before its first round: the federated data set and the network."""

from pathlib import Path

from torch import Tensor

from rofl.config.schema import Experiment
from rofl.core.rng import derive
from rofl.data.dataset import Dataset
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.pretrained_weights import weights_file
from rofl.errors import UserError
from rofl.simulation.client import NetworkSpec


def load_inputs(
    experiment: Experiment, data_dir: Path | None, dataset: Dataset | None = None
) -> tuple[FederatedDataset, NetworkSpec]:
    """Return the federated data set and the network of an experiment.

    Args:
        experiment: the settings.
        data_dir: the folder of published data sets; $ROFL_DATA where None.
        dataset: samples that the caller has in memory, instead of those that the settings name.

    Raises:
        UserError: the data or the weights cannot be read, or the network does not fit the data.
    """
    federated, spec = load_federated(experiment.split, data_dir, dataset), experiment.model
    if federated.images.is_table and spec.name != "mlp":
        raise UserError(f"A table is nothing for the model {spec.name}, which is for images.", "model.name=mlp")
    return federated, network_spec(
        experiment, federated.images, str(weights_file(spec.weights, data_dir)) if spec.weights else ""
    )


def network_spec(experiment: Experiment, images: Dataset, weights: str = "") -> NetworkSpec:
    """The network for these images; `weights` is a file to start from."""
    spec, shape, classes = experiment.model, images.shape, len(images.classes)
    return NetworkSpec(spec.name, shape, classes, spec.width, derive(experiment.seed, "network"), weights)


def accuracy(logits: Tensor, truth: Tensor) -> float:
    """Accuracy in per cent of logits (n, K) by the true classes (n,)."""
    return float((logits.argmax(dim=1) == truth).double().mean() * 100)
