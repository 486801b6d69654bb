"""Who has the data: a site with samples of its own, or one that takes its part of a known data set."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from flwr.app import Context

from rofl.config import Experiment, experiment_of
from rofl.data import ImageSet, own
from rofl.engines.flower.wire import Order
from rofl.errors import UserError
from rofl.experiment import materials
from rofl.federation.seat import ClientSeat


@dataclass
class _Host(ABC):
    """Keeps the seat of the run that goes on."""

    out: Path | None = None  # where a site's folder goes
    data_dir: Path | None = None
    _seats: dict[tuple[str, int], ClientSeat] = field(default_factory=dict)

    def seat(self, order: Order, context: Context) -> ClientSeat:
        """The seat for these settings; the same one again where nothing changed."""
        client = self.number(context)
        if (order.settings, client) not in self._seats:
            told = experiment_of(order.settings)
            _check_files(told)
            chosen = self.localised(told, client)
            scene, network = materials(chosen, self.data_dir)
            self._forget(order.settings)
            method = told.build_method(secret_noise=True)  # nobody else may draw it again
            self._seats[order.settings, client] = ClientSeat.take(chosen, method, scene, network, client, self.out)
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
    named |= {"data.scene": data.scene, "model.weights": told.model.weights.removeprefix("imagenet")}
    for key, value in named.items():
        if value:
            raise UserError(f"The coordinator's settings name a file of this site, by {key}.", "settings without it")


@dataclass
class PartHost(_Host):
    """Takes the client's part of a data set that everybody has: rehearsals, tests, and Flower's own simulation."""

    name: str = ""

    def describe(self, order: Order, context: Context) -> Mapping[str, int | float | str]:
        """This client's number, and how many samples it has."""
        client = self.number(context)
        if not order.settings:
            raise UserError(
                "The coordinator leaves the data to the sites, and this one has none.", "rofl join --data PATH"
            )
        samples = len(self.seat(order, context).scene.labels)
        return {"client": client, "name": self.name or f"client {client}", "samples": samples}

    def localised(self, chosen: Experiment, client: int) -> Experiment:
        """Only this client's part."""
        spec = chosen.data.model_copy(update={"only": client, "owner": self.name})
        return chosen.model_copy(update={"data": spec})


@dataclass
class OwnHost(_Host):
    """A site with samples of its own."""

    name: str = "site"
    source: own.Source = field(default_factory=lambda: own.Source(""))
    progress: own.Progress | None = None

    @cached_property
    def images(self) -> ImageSet:
        """All samples, in the form that suits them."""
        found = own.load(self.source, self.progress)
        if found.is_table:
            raise UserError("A table has no place in a federation yet: its columns would have to be scaled alike.")
        return found

    def describe(self, order: Order, context: Context) -> Mapping[str, int | float | str]:
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
        where = replace(self.source, side=agreed.side, channels=agreed.channels, classes=agreed.classes, content="")
        images = own.load(where, self.progress)
        spec = agreed.model_copy(
            update={
                "path": str(Path(where.path).absolute()),
                "test_path": where.test_path,
                "partition": "iid",
                "content": images.content,
                "owner": self.name,
            }
        )
        return chosen.model_copy(update={"data": spec, "clients": 1, "cohort": 1})
