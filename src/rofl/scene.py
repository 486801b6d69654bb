"""The scene of a run: images, wrong labels, and who holds which; a function of the experiment alone."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from rofl.config import Experiment
from rofl.core import noise
from rofl.core.seeds import generator, numpy_generator
from rofl.data import ImageSet, load, partition

_MATRICES = {"symmetric": noise.symmetric, "pair": noise.pair}


@dataclass(frozen=True)
class Scene:
    """A data set with its given labels, distributed over clients."""

    images: ImageSet
    labels: Tensor  # (N,) given, partly wrong
    parts: list[Tensor]  # rows of each client

    @property
    def wrong(self) -> Tensor:
        """Mask (N,) of the labels that are wrong."""
        return self.labels != self.images.train_labels

    @property
    def noise_ratio(self) -> float:
        """The share that is wrong in fact."""
        return noise.achieved_ratio(self.labels, self.images.train_labels)


def prepare(experiment: Experiment, data_dir: Path | None = None) -> Scene:
    """Load, put the noise on the whole set, then distribute it: clients differ in their noise."""
    spec = experiment.data
    images = load(spec.name, data_dir).hold_out(spec.validation).first(spec.train, spec.test)
    matrix = _MATRICES[experiment.noise.kind](len(images.classes), experiment.noise.ratio)
    labels = noise.corrupt(images.train_labels, matrix, generator(experiment.seed, "noise"))
    rng = numpy_generator(experiment.seed, "partition")
    if spec.partition == "iid":
        parts = partition.iid(labels, experiment.clients, spec.minimum, rng)
    elif spec.partition == "shards":
        parts = partition.shards(labels, experiment.clients, spec.minimum, rng, spec.shards)
    else:
        parts = partition.dirichlet(labels, experiment.clients, spec.minimum, rng, spec.alpha)
    return Scene(images, labels, parts)
