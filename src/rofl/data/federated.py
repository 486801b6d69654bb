"""A data set distributed over clients, with noisy labels; a function of the settings only."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from rofl.core import noise
from rofl.core.rng import derive, generator, numpy_generator
from rofl.data import brightness, partition
from rofl.data.client_dataset import ClientDataset, SampledClients
from rofl.data.corruption import corrupt_clients, corrupt_labels
from rofl.data.dataset import Dataset
from rofl.data.dataset_registry import load_dataset
from rofl.data.label_csv import read_labels
from rofl.data.specs import IN_MEMORY, SplitSpec
from rofl.data.split_file import read_split, write_split
from rofl.data.user import load_user_data
from rofl.errors import UserError


@dataclass(frozen=True)
class FederatedDataset:
    """A data set with its given labels and the rows of each client.

    Attributes:
        images: the data set, with true labels if known.
        labels: (N,) given labels, some of them wrong.
        parts: the rows that each client trains on; a `SampledClients` if clients share samples.
        spec: its settings.
        validation: the held-out rows of each client; empty if there are none.
    """

    images: Dataset
    labels: Tensor
    parts: Sequence[Tensor]
    spec: SplitSpec
    validation: tuple[Tensor, ...] = ()

    @property
    def validation_rows(self) -> Tensor:
        """All held-out rows (V,)."""
        return torch.cat(self.validation) if self.validation else torch.empty(0, dtype=torch.long)

    @property
    def test_as_given(self) -> bool:
        """Whether the test labels are the user's given ones, not the true ones of a benchmark."""
        if self.spec.data.name == IN_MEMORY:
            return not self.images.truth_known
        return bool(self.spec.data.path) and not self.spec.noise.is_drawn

    @property
    def wrong(self) -> Tensor:
        """Mask (N,) of the given labels that differ from the true ones."""
        return self.labels != self.images.train_labels

    @property
    def noise_ratio(self) -> float:
        """The share of given labels that are wrong."""
        return noise.empirical_noise_rate(self.labels, self.images.train_labels)

    @property
    def client_noise_rates(self) -> list[float]:
        """The share of wrong labels in each of `client_views`."""
        truth = self.images.train_labels
        return [noise.empirical_noise_rate(self.labels[rows], truth[rows]) for _, rows in self.client_views]

    @property
    def client_names(self) -> tuple[str, ...]:
        """The names of the clients: those of the data, or their numbers."""
        data = self.spec.data
        if data.client_name:
            return (data.client_name,)
        if _keeps_owners(self.images, self.spec):
            return self.images.clients
        first = max(data.client_index, 0)  # a site with one client keeps that client's number
        return tuple(str(first + place) for place in range(len(self.parts)))

    @property
    def client_views(self) -> list[tuple[str, Tensor]]:
        """Name and rows of each list of samples: one per client, or a single list if clients share samples."""
        if isinstance(self.parts, SampledClients):
            return [("all", torch.arange(len(self.labels)))]
        return list(zip(self.client_names, self.client_rows, strict=True))

    @property
    def client_rows(self) -> Sequence[Tensor]:
        """All rows of each client, training and held-out."""
        if not self.validation:
            return self.parts
        return [torch.cat(both).sort().values for both in zip(self.parts, self.validation, strict=True)]

    def client_data(self, client: int) -> ClientDataset:
        """Return the samples of one client, by its number."""
        images, rows = self.images, self.parts[client]
        return ClientDataset(images.train, rows, self.labels[rows], len(images.classes), images.transform)

    def save(self, path: Path) -> None:
        """Write labels and parts to a new file, which the setting `data.split` reads.

        Raises:
            UserError: the split came from a file, or its clients share samples.
        """
        if self.spec.data.split:
            raise UserError(f"This split was read from {self.spec.data.split}; nothing was drawn.", "copy that file")
        if isinstance(self.parts, SampledClients):
            raise UserError("Clients that share samples cannot be saved in a split file.", "the same seed")
        write_split(path, self.labels, self.client_rows, self.images.train_labels, self.spec)


def load_federated(spec: SplitSpec, data_dir: Path | None = None, dataset: Dataset | None = None) -> FederatedDataset:
    """Load a data set, corrupt its labels and distribute it over clients.

    A skewed partition follows the true classes, if known: clients differ in their samples, not in how these were
    labelled. Noise is drawn for the whole set, so the clients' noise rates vary by chance, unless they differ by
    design.

    Args:
        spec: the settings; equal settings give equal results.
        data_dir: the folder of published data sets; $ROFL_DATA if None.
        dataset: samples that the caller has in memory, instead of those that `spec.data` names.

    Raises:
        UserError: the data cannot be read, or does not fit the settings.
    """
    data = spec.data
    if data.at_sites:
        raise UserError("The samples of this run are at its sites.", "the folder that rofl join wrote there")
    if data.name == IN_MEMORY:
        dataset = _check_dataset(dataset, data.fingerprint)
    if dataset is None:
        dataset = load_user_data(data.source) if data.path else load_dataset(data.name, data_dir)
    images = dataset.hold_out(data.validation).first(data.train, data.test)
    parts: Sequence[Tensor]
    if data.split:
        labels, parts = read_split(Path(data.split), images.train_labels, len(images.classes), spec)
    else:
        parts = _partition(images, images.train_labels, spec)
        per_client = spec.noise.per_client
        labels = corrupt_clients(images, parts, spec) if per_client else corrupt_labels(images, spec, data_dir)
    if data.labels:  # last, so that every client keeps its samples
        labels = read_labels(Path(data.labels), images.samples, images.classes, labels, images.test_ids)
    if data.brightness:
        draws = (generator(spec.seed, "light", client) for client in range(len(parts)))
        images = brightness.adjust_clients(
            images, parts, [brightness.sample_brightness(data.brightness, draw) for draw in draws]
        )
    validation: tuple[Tensor, ...] = ()
    if data.validation_share:
        draws = (generator(spec.seed, "validation", client) for client in range(len(parts)))
        parts, validation = partition.hold_out(parts, data.validation_share, draws)
    federated = FederatedDataset(images, labels, parts, spec, validation)
    if data.client_index >= len(parts):
        raise UserError(
            f"There is no client {data.client_index}: there are {len(parts)}, counted from 0.", "a smaller number"
        )
    return federated if data.client_index < 0 else _one_client(federated, data.client_index)


def _one_client(federated: FederatedDataset, client: int) -> FederatedDataset:
    """Return the data set with only the samples of one client."""
    rows = federated.client_rows[client]
    places = [torch.searchsorted(rows, each[client]) for each in (federated.parts, federated.validation) if each]
    return replace(
        federated,
        images=federated.images.select(rows),
        labels=federated.labels[rows],
        parts=[places[0]],
        validation=tuple(places[1:]),
    )


def _check_dataset(dataset: Dataset | None, fingerprint: str) -> Dataset:
    """Return the caller's samples after a check that they match the settings."""
    if dataset is None:
        hint = "rofl.resume(RUN, data=...) or rofl.audit(RUN, data=...) in Python, with the same samples"
        raise UserError("The samples of this run came from Python, not from a file.", hint)
    if fingerprint not in ("", dataset.fingerprint):
        raise UserError("These are not the samples that the run was started with.", "the same data=...")
    return dataset


def _partition(images: Dataset, labels: Tensor, spec: SplitSpec) -> Sequence[Tensor]:
    """Return the rows of each client, for the partition of the settings.

    Args:
        images: the data set.
        labels: (N,) the labels that a skewed partition follows.
        spec: the settings.
    """
    data, rng = spec.data, numpy_generator(spec.seed, "partition")
    if _keeps_owners(images, spec):
        return _by_owner(images, spec.clients)
    if data.partition == "sampled":
        return SampledClients(len(labels), spec.clients, data.samples_per_client, derive(spec.seed, "partition"))
    if data.partition in ("iid", "natural"):
        return partition.iid(labels, spec.clients, data.min_samples, rng)
    if data.partition == "shards":
        return partition.shards(labels, spec.clients, data.min_samples, rng, data.shards)
    if data.partition == "bernoulli":
        return partition.bernoulli(labels, spec.clients, data.min_samples, rng, data.class_probability, data.alpha)
    if data.partition == "classes":
        return partition.by_classes(labels, spec.clients, data.min_samples, rng, data.client_classes)
    if data.partition == "quantity":
        return partition.quantity(labels, spec.clients, data.min_samples, rng, data.alpha)
    return partition.dirichlet(labels, spec.clients, data.min_samples, rng, data.alpha)


def _keeps_owners(images: Dataset, spec: SplitSpec) -> bool:
    """Return whether samples keep the clients that the data names."""
    return images.owners is not None and spec.data.partition == "natural" and not spec.centralized


def _by_owner(images: Dataset, clients: int) -> list[Tensor]:
    """Return the rows of each owner; raise a UserError if their number differs or one has no samples."""
    assert images.owners is not None
    owners = len(images.clients)
    if owners != clients:
        raise UserError(f"The data has {owners} clients, not {clients}.", f"clients={owners}")
    parts = [(images.owners == client).nonzero().flatten() for client in range(clients)]
    for name, rows in zip(images.clients, parts, strict=True):
        if len(rows) == 0:
            raise UserError(f"Client {name} has no samples to train on.", "a larger data.train")
    return parts
