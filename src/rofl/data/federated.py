"""A data set distributed over clients, with its given labels; a function of the settings alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from rofl.core import noise
from rofl.core.rng import derive, generator, numpy_generator
from rofl.data import brightness, partition
from rofl.data.client_dataset import ClientDataset
from rofl.data.corruption import corrupt_clients, corrupt_labels
from rofl.data.dataset import Dataset
from rofl.data.label_csv import read_labels
from rofl.data.registry import load_dataset
from rofl.data.sampled_clients import SampledClients
from rofl.data.specs import IN_MEMORY, SplitSpec
from rofl.data.split_file import read_split, write_split
from rofl.data.user import load_user_data
from rofl.errors import UserError


@dataclass(frozen=True)
class FederatedDataset:
    """A data set with its given labels, distributed over clients."""

    images: Dataset
    labels: Tensor  # (N,) given, partly wrong
    parts: Sequence[Tensor]  # rows of each client
    spec: SplitSpec  # what it is a function of

    @property
    def wrong(self) -> Tensor:
        """Mask (N,) of the labels that are wrong."""
        return self.labels != self.images.train_labels

    @property
    def noise_ratio(self) -> float:
        """The share that is wrong in fact."""
        return noise.empirical_noise_rate(self.labels, self.images.train_labels)

    @property
    def client_noise_rates(self) -> list[float]:
        """The share that is wrong in fact, of each list's labels."""
        truth = self.images.train_labels
        return [noise.empirical_noise_rate(self.labels[rows], truth[rows]) for _, rows in self.client_views]

    @property
    def client_names(self) -> tuple[str, ...]:
        """What own data calls its clients; else their numbers."""
        data = self.spec.data
        if data.client_name:
            return (data.client_name,)
        named = _keeps_owners(self.images, self.spec)
        first = max(data.client_index, 0)
        return self.images.clients if named else tuple(str(first + place) for place in range(len(self.parts)))

    @property
    def client_views(self) -> list[tuple[str, Tensor]]:
        """Whose samples are told of together: each client's, or all of them where clients share samples."""
        if isinstance(self.parts, SampledClients):
            return [("all", torch.arange(len(self.labels)))]
        return list(zip(self.client_names, self.parts, strict=True))

    def client_data(self, client: int) -> ClientDataset:
        """One client's samples."""
        rows = self.parts[client]
        return ClientDataset(
            self.images.train, rows, self.labels[rows], len(self.images.classes), self.images.transform
        )

    def save(self, path: Path) -> None:
        """Write labels and parts to a new file, which `data.split` then names."""
        if self.spec.data.split:
            raise UserError(f"This split is that of {self.spec.data.split}; nothing was drawn.", "copy that file")
        if isinstance(self.parts, SampledClients):
            raise UserError("Clients that share samples fit in no split file; the seed says it all.", "the same seed")
        write_split(path, self.labels, self.parts, self.images.train_labels, self.spec)


def load_federated(spec: SplitSpec, data_dir: Path | None = None, dataset: Dataset | None = None) -> FederatedDataset:
    """Load a data set, corrupt its labels and distribute it over clients.

    Noise is applied to the whole set before it is distributed, so the clients' noise rates vary by chance; noise that
    differs between clients by design is applied after the distribution.

    Args:
        spec: the settings; equal settings give equal results.
        data_dir: the folder of published data sets; $ROFL_DATA where None.
        dataset: samples that the caller has in memory, instead of those that `spec.data` names.

    Raises:
        UserError: the data cannot be read, or does not fit the settings.
    """
    data = spec.data
    if data.at_sites:
        raise UserError("The samples of this run lie at its sites.", "the folder that rofl join wrote there")
    if data.name == IN_MEMORY:
        dataset = _check_dataset(dataset, data.fingerprint)
    if dataset is None:
        dataset = load_user_data(data.source) if data.path else load_dataset(data.name, data_dir)
    images = dataset.hold_out(data.validation).first(data.train, data.test)
    parts: Sequence[Tensor]
    if data.split:
        labels, parts = read_split(Path(data.split), images.train_labels, len(images.classes), spec)
    elif spec.noise.per_client:
        parts = _share_out(images, images.train_labels, spec)
        labels = corrupt_clients(images, parts, spec)
    else:
        labels = corrupt_labels(images, spec, data_dir)
        parts = _share_out(images, labels, spec)
    if data.labels:  # last, so that everybody holds the same samples as before
        labels = read_labels(Path(data.labels), images.samples, images.classes, labels, images.test_ids)
    if data.brightness:
        draws = (generator(spec.seed, "light", client) for client in range(len(parts)))
        images = brightness.adjust_clients(
            images, parts, [brightness.sample_brightness(data.brightness, draw) for draw in draws]
        )
    if data.client_index >= len(parts):
        raise UserError(
            f"There is no client {data.client_index}: there are {len(parts)}, counted from 0.", "a smaller number"
        )
    if data.client_index >= 0:
        rows = parts[data.client_index]
        images, labels, parts = images.select(rows), labels[rows], [torch.arange(len(rows))]
    return FederatedDataset(images, labels, parts, spec)


def _check_dataset(dataset: Dataset | None, fingerprint: str) -> Dataset:
    """Return the caller's samples, if they are those that the settings were made for."""
    if dataset is None:
        raise UserError("The samples of this run came from Python, not from a file.", "rofl.resume(RUN, data=...)")
    if fingerprint not in ("", dataset.fingerprint):
        raise UserError("These are not the samples that the run was started with.", "the same data=...")
    return dataset


def _share_out(images: Dataset, labels: Tensor, spec: SplitSpec) -> Sequence[Tensor]:
    """The rows of each client."""
    data, rng = spec.data, numpy_generator(spec.seed, "partition")
    if _keeps_owners(images, spec):
        return _by_owner(images, spec.clients)
    if data.partition == "sampled":
        return SampledClients(len(labels), spec.clients, data.samples_per_client, derive(spec.seed, "partition"))
    if data.partition in ("iid", "natural"):
        return partition.iid(labels, spec.clients, data.min_samples, rng)
    if data.partition == "shards":
        return partition.shards(labels, spec.clients, data.min_samples, rng, data.shards)
    return partition.dirichlet(labels, spec.clients, data.min_samples, rng, data.alpha)


def _keeps_owners(images: Dataset, spec: SplitSpec) -> bool:
    """Whether samples stay with the clients that the data names."""
    return images.owners is not None and spec.data.partition == "natural" and not spec.centralized


def _by_owner(images: Dataset, clients: int) -> list[Tensor]:
    assert images.owners is not None
    there = len(images.clients)
    if there != clients:
        raise UserError(f"The data is of {there} clients, not {clients}.", f"clients={there}")
    parts = [(images.owners == client).nonzero().flatten() for client in range(clients)]
    for name, rows in zip(images.clients, parts, strict=True):
        if len(rows) == 0:
            raise UserError(f"Nothing is left for client {name} to train with.", "a larger data.train")
    return parts
