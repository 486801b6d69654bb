"""Who has the data: a site with samples of its own, or one that takes its part of a known data set."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from flwr.app import Context

from rofl.config.schema import Experiment, experiment_from_toml
from rofl.data import Dataset, user
from rofl.errors import UserError
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_client import SiteClient
from rofl.training.inputs import load_inputs


@dataclass
class _SiteData(ABC):
    """Keeps the seat of the run that goes on."""

    out: Path | None = None  # where a site's folder goes
    data_dir: Path | None = None
    _seats: dict[tuple[str, int], SiteClient] = field(default_factory=dict)

    def seat(self, order: RoundRequest, context: Context) -> SiteClient:
        """The seat for these settings; the same one again where nothing changed."""
        client = self.number(context)
        if (order.settings, client) not in self._seats:
            told = experiment_from_toml(order.settings)
            _check_files(told)
            chosen = self.localised(told, client)
            federated, network = load_inputs(chosen, self.data_dir)
            self._forget(order.settings)
            method = told.build_method(secret_noise=True)  # nobody else may draw it again
            self._seats[order.settings, client] = SiteClient.take(chosen, method, federated, network, client, self.out)
        return self._seats[order.settings, client]

    def number(self, context: Context) -> int:
        """This client's place among all, counted from 0."""
        return int(context.node_config["partition-id"])

    @abstractmethod
    def localised(self, chosen: Experiment, client: int) -> Experiment:
        """The coordinator's settings as they are to be read here."""

    def _forget(self, settings: str) -> None:
        for key in [key for key in self._seats if key[0] != settings]:
            self._seats.pop(key).simulation.pool.close()


def _check_files(told: Experiment) -> None:
    """A coordinator's settings may not name files of a site: what is said about one would tell whether it is there."""
    data = told.data
    named = {"data.path": data.path, "data.test_path": data.test_path, "data.labels": data.labels}
    named |= {"data.split": data.split, "model.weights": told.model.weights.removeprefix("imagenet")}
    for key, value in named.items():
        if value:
            raise UserError(f"The coordinator's settings name a file of this site, by {key}.", "settings without it")


@dataclass
class PartitionedData(_SiteData):
    """Takes the client's part of a data set that everybody has: rehearsals, tests, and Flower's own simulation."""

    name: str = ""

    def describe(self, order: RoundRequest, context: Context) -> Mapping[str, int | float | str]:
        """This client's number, and how many samples it has."""
        client = self.number(context)
        if not order.settings:
            raise UserError(
                "The coordinator leaves the data to the sites, and this one has none.", "rofl join --data PATH"
            )
        samples = len(self.seat(order, context).federated.labels)
        return {"client": client, "name": self.name or f"client {client}", "samples": samples}

    def localised(self, chosen: Experiment, client: int) -> Experiment:
        """Only this client's part."""
        spec = chosen.data.model_copy(update={"client_index": client, "client_name": self.name})
        return chosen.model_copy(update={"data": spec})


@dataclass
class LocalData(_SiteData):
    """A site with samples of its own."""

    name: str = "site"
    source: user.UserSource = field(default_factory=lambda: user.UserSource(""))
    progress: user.Progress | None = None

    @cached_property
    def images(self) -> Dataset:
        """All samples, in the form that suits them."""
        found = user.load_user_data(self.source, self.progress)
        if found.is_table:
            raise UserError("A table has no place in a federation yet: its columns would have to be scaled alike.")
        return found

    def describe(self, order: RoundRequest, context: Context) -> Mapping[str, int | float | str]:
        """Number, name, sizes and the classes' names; no sample and no label."""
        channels, side, _ = self.images.shape
        return {
            "client": self.number(context),
            "name": self.name,
            "samples": len(self.images.train_labels),
            "side": side,
            "channels": channels,
            "classes": json.dumps(list(self.images.classes)),
        }

    def localised(self, chosen: Experiment, client: int) -> Experiment:
        """The one client of its own data, in the form that all agreed on."""
        agreed = chosen.data
        if not agreed.at_sites:
            raise UserError(
                f"The coordinator learns {agreed.title}, which this site's own data has no part in.",
                "rofl join without --data",
            )
        where = replace(self.source, side=agreed.side, channels=agreed.channels, classes=agreed.classes, fingerprint="")
        images = user.load_user_data(where, self.progress)
        spec = agreed.model_copy(
            update={
                "path": str(Path(where.path).absolute()),
                "test_path": where.test_path,
                "partition": "iid",
                "fingerprint": images.fingerprint,
                "client_name": self.name,
            }
        )
        return chosen.model_copy(update={"data": spec, "clients": 1, "cohort": 1})
