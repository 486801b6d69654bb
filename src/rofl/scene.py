"""The scene of a run: images, wrong labels, and who holds which; a function of the experiment alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rofl import labels_file, scene_file
from rofl.config import Experiment
from rofl.core import noise
from rofl.core.seeds import derive, generator, numpy_generator
from rofl.data import ImageSet, Shard, cifar10n, light, load, own, partition
from rofl.data.files import data_dir as find_data_dir
from rofl.data.parts import Drawn
from rofl.errors import UserError

_MATRICES = {"symmetric": noise.symmetric, "pair": noise.pair}
_GROUPS = 5  # of clients that share a noise ratio, as in the paper


@dataclass(frozen=True)
class Scene:
    """A data set with its given labels, distributed over clients."""

    images: ImageSet
    labels: Tensor  # (N,) given, partly wrong
    parts: Sequence[Tensor]  # rows of each client
    experiment: Experiment  # whose scene it is

    @property
    def wrong(self) -> Tensor:
        """Mask (N,) of the labels that are wrong."""
        return self.labels != self.images.train_labels

    @property
    def noise_ratio(self) -> float:
        """The share that is wrong in fact."""
        return noise.achieved_ratio(self.labels, self.images.train_labels)

    @property
    def client_ratios(self) -> list[float]:
        """The share that is wrong in fact, of each list's labels."""
        truth = self.images.train_labels
        return [noise.achieved_ratio(self.labels[rows], truth[rows]) for _, rows in self.lists]

    @property
    def client_names(self) -> tuple[str, ...]:
        """What own data calls its clients; else their numbers."""
        spec = self.experiment.data
        if spec.owner:
            return (spec.owner,)
        named = _keeps_owners(self.images, self.experiment)
        first = max(spec.only, 0)
        return self.images.clients if named else tuple(str(first + place) for place in range(len(self.parts)))

    @property
    def lists(self) -> list[tuple[str, Tensor]]:
        """Whose samples are told of together: each client's, or all of them where clients share samples."""
        if isinstance(self.parts, Drawn):
            return [("all", torch.arange(len(self.labels)))]
        return list(zip(self.client_names, self.parts, strict=True))

    def shard(self, client: int) -> Shard:
        """One client's samples."""
        rows = self.parts[client]
        return Shard(self.images.train, rows, self.labels[rows], len(self.images.classes), self.images.transform)

    def save(self, path: Path) -> None:
        """Write labels and parts to a new file, which `data.scene` then names."""
        if self.experiment.data.scene:
            raise UserError(f"This scene is that of {self.experiment.data.scene}; nothing was drawn.", "copy that file")
        if isinstance(self.parts, Drawn):
            raise UserError("Clients that share samples fit in no scene file; the seed says it all.", "the same seed")
        scene_file.write(path, self.labels, self.parts, self.images.train_labels, self.experiment)


def prepare(experiment: Experiment, data_dir: Path | None = None) -> Scene:
    """Load, put the noise on the whole set, then distribute it: clients differ in their noise.

    Noise that differs from client to client by design goes on after the distribution.
    """
    spec = experiment.data
    if spec.at_sites:
        raise UserError("The samples of this run lie at its sites.", "the folder that rofl join wrote there")
    whole = own.load(spec.source) if spec.path else load(spec.name, data_dir)
    images = whole.hold_out(spec.validation).first(spec.train, spec.test)
    parts: Sequence[Tensor]
    if spec.scene:
        labels, parts = scene_file.read(Path(spec.scene), images.train_labels, len(images.classes), experiment)
    elif experiment.noise.per_client:
        parts = _share_out(images, images.train_labels, experiment)
        labels = _corrupt_clients(images, parts, experiment)
    else:
        labels = _corrupt(images, experiment, data_dir)
        parts = _share_out(images, labels, experiment)
    if spec.labels:  # last, so that everybody holds the same samples as before
        labels = labels_file.read(Path(spec.labels), images.samples, images.classes, labels, images.test_ids)
    if spec.light:
        draws = (generator(experiment.seed, "light", client) for client in range(len(parts)))
        images = light.light_clients(images, parts, [light.draw_factor(spec.light, draw) for draw in draws])
    if spec.only >= len(parts):
        raise UserError(f"There is no client {spec.only}: there are {len(parts)}, counted from 0.", "a smaller number")
    if spec.only >= 0:
        rows = parts[spec.only]
        images, labels, parts = images.select(rows), labels[rows], [torch.arange(len(rows))]
    return Scene(images, labels, parts, experiment)


def _corrupt(images: ImageSet, experiment: Experiment, data_dir: Path | None) -> Tensor:
    """Given labels (N,) of the whole set: drawn, or those that people gave."""
    spec, truth = experiment.noise, images.train_labels
    if spec.kind == "human":
        return cifar10n.read(find_data_dir(data_dir) / experiment.data.name, spec.labels, truth)
    matrix = _MATRICES[spec.kind](len(images.classes), spec.ratio)
    return noise.corrupt(truth, matrix, generator(experiment.seed, "noise"))


def _corrupt_clients(images: ImageSet, parts: Sequence[Tensor], experiment: Experiment) -> Tensor:
    """Given labels (N,), drawn for each client by its own group's ratio, perhaps with one of its classes all wrong."""
    spec, truth, classes = experiment.noise, images.train_labels, len(images.classes)
    make = _MATRICES[spec.kind]
    groups = noise.assign_groups(len(parts), _GROUPS, generator(experiment.seed, "groups"))
    ratios = noise.group_ratios(spec.ratio, spec.spread, _GROUPS)[groups].tolist()
    labels = truth.clone()
    for client, (rows, ratio) in enumerate(zip(parts, ratios, strict=True)):
        matrix = make(classes, ratio)
        if spec.whole_class:
            held = truth[rows].unique()  # a class that the client has: another would change nothing
            drawn = torch.randint(len(held), (), generator=generator(experiment.seed, "whole class", client))
            matrix = noise.whole_class(make, classes, ratio, int(held[drawn]))
        labels[rows] = noise.corrupt(truth[rows], matrix, generator(experiment.seed, "noise", client))
    return labels


def _share_out(images: ImageSet, labels: Tensor, experiment: Experiment) -> Sequence[Tensor]:
    """The rows of each client."""
    spec, rng = experiment.data, numpy_generator(experiment.seed, "partition")
    if _keeps_owners(images, experiment):
        return _by_owner(images, experiment.clients)
    if spec.partition == "drawn":
        return Drawn(len(labels), experiment.clients, spec.each, derive(experiment.seed, "partition"))
    if spec.partition in ("iid", "given"):
        return partition.iid(labels, experiment.clients, spec.minimum, rng)
    if spec.partition == "shards":
        return partition.shards(labels, experiment.clients, spec.minimum, rng, spec.shards)
    return partition.dirichlet(labels, experiment.clients, spec.minimum, rng, spec.alpha)


def _keeps_owners(images: ImageSet, experiment: Experiment) -> bool:
    """Whether samples stay with the clients that the data names."""
    return images.owners is not None and experiment.data.partition == "given" and experiment.setting == "federated"


def _by_owner(images: ImageSet, clients: int) -> list[Tensor]:
    assert images.owners is not None
    there = len(images.clients)
    if there != clients:
        raise UserError(f"The data is of {there} clients, not {clients}.", f"clients={there}")
    parts = [(images.owners == client).nonzero().flatten() for client in range(clients)]
    for name, rows in zip(images.clients, parts, strict=True):
        if len(rows) == 0:
            raise UserError(f"Nothing is left for client {name} to train with.", "a larger data.train")
    return parts
