"""Settings of the data: which samples, who holds them, and which labels are made wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rofl.core.spec import Spec
from rofl.data.registry import DATASETS
from rofl.data.sources import cifar10n
from rofl.data.user import SUFFIXES, UserSource
from rofl.errors import UserError

IN_MEMORY = "memory"  # the name of samples that the caller holds: rofl.run(experiment, data=...)
USER_DATA = "own"  # the name of a user's own data in settings and summaries


class DataSpec(Spec):
    """Which samples, and who holds them."""

    name: str = "digits"
    train: Annotated[int, Field(ge=1)] | None = None  # only the first so many
    test: Annotated[int, Field(ge=1)] | None = None
    validation: Annotated[int, Field(ge=0)] = 0  # evaluate on so many training images set aside, not on the test set
    partition: Literal["iid", "shards", "dirichlet", "sampled", "natural"] = (
        "iid"  # natural: as own data names its clients
    )
    samples_per_client: Annotated[int, Field(ge=2)] = 50  # samples of a client that are drawn from all
    alpha: Annotated[float, Field(gt=0)] = 0.5  # of the Dirichlet draw
    shards: Annotated[int, Field(ge=1)] = 2  # pieces per client
    min_samples: Annotated[int, Field(ge=1)] = 2  # samples every client has at least
    brightness: Annotated[float, Field(ge=0, lt=1)] = (
        0.0  # each client's images are 1 - brightness to 1 + brightness times as bright
    )
    split: str = ""  # a file of `rofl split` to take labels and clients from, instead of drawing them
    labels: str = ""  # a file of `rofl audit --labels-out` whose labels take the given ones' place
    path: str = ""  # own data: a folder, or a .csv, .parquet or .npz file; the name is then "own"
    test_path: str = ""  # its test part, where that lies elsewhere
    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.2  # share of own data to test with, where no part is for it
    side: Annotated[int, Field(ge=0, le=1024)] = 0  # pixels of own images, which are made square; 0: as suits them
    channels: Literal[0, 1, 3] = 0  # of own images: grey or colours; 0: as suits them
    fingerprint: str = ""  # the fingerprint of own data, which must not change between a run and its resume; "": any
    classes: tuple[str, ...] = ()  # of own data, where sites that do not all have all of them agreed on them
    client_index: Annotated[int, Field(ge=-1)] = -1  # of all clients only this one, as a site has it; -1: all
    client_name: str = ""  # a name for the one client of a site

    @model_validator(mode="before")
    @classmethod
    def _own(cls, settings: Any) -> Any:
        """Own data needs no name, and keeps its clients unless something else is asked for."""
        if not isinstance(settings, Mapping) or not settings.get("path"):
            return settings
        return {"partition": "natural", **settings, "name": USER_DATA}

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in (USER_DATA, IN_MEMORY):
            DATASETS.find(name)
        return name

    @field_validator("side")
    @classmethod
    def _seen(cls, side: int) -> int:
        if 0 < side < 4:
            raise ValueError("0, or 4 and more")
        return side

    @model_validator(mode="after")
    def _fits(self) -> "DataSpec":
        if self.path or self.at_sites or self.name == IN_MEMORY:
            return self
        if self.name == USER_DATA:
            raise UserError("data.name = own needs data.path.", "rofl run --data PATH")
        if self.test_path:
            raise UserError(
                "data.test_path is for own data, and data.path is empty.", "rofl run --data PATH --test PATH"
            )
        if self.partition == "natural":
            raise UserError(
                f"{self.name} names no clients, so data.partition = natural says nothing.", "data.partition=iid"
            )
        return self

    @property
    def source(self) -> UserSource:
        """Own data as the data room takes it."""
        return UserSource(
            self.path, self.test_path, self.holdout, self.side, self.channels, self.fingerprint, self.classes
        )

    @property
    def at_sites(self) -> bool:
        """Whether the samples lie with others, so that this machine only coordinates."""
        return self.name == USER_DATA and not self.path and bool(self.classes)

    @property
    def title(self) -> str:
        """A name for people.

        >>> DataSpec().title, DataSpec(path="/home/me/x-rays/").title
        ('digits', 'x-rays')
        """
        path = Path(self.path)
        name = path.stem if path.suffix.casefold() in SUFFIXES else path.name  # a folder's name may have a point
        return (name or USER_DATA) if self.path else self.name


class NoiseSpec(Spec):
    """Which labels are made wrong; on the whole set, which is then distributed, unless clients are to differ."""

    kind: Literal["symmetric", "pair", "human"] = "symmetric"
    ratio: Annotated[float, Field(ge=0, lt=1)] = 0.4  # of symmetric and pair
    labels: Literal["aggre", "random1", "random2", "random3", "worse"] = "worse"  # of human: which of CIFAR-10N
    client_spread: Annotated[float, Field(ge=0)] = (
        0.0  # the paper's eta: clients in five groups, ratio - eta to ratio + eta
    )
    fully_noisy_class: bool = False  # each client has one class that is entirely wrong

    @model_validator(mode="after")
    def _fits(self) -> "NoiseSpec":
        if self.kind == "human" and self.per_client:
            key = "fully_noisy_class" if self.fully_noisy_class else "client_spread"
            raise UserError(f"noise.{key} is for drawn noise, not for noise.kind = human.", "noise.kind=symmetric")
        low, high = self.ratio - self.client_spread, self.ratio + self.client_spread
        if self.client_spread and not 0 <= low <= high < 1:
            raise UserError(
                f"noise.client_spread = {self.client_spread:g} around noise.ratio = {self.ratio:g} goes from {low:g} "
                f"to {high:g}, and noise lies in [0, 1).",
                "a smaller noise.client_spread",
            )
        return self

    @property
    def per_client(self) -> bool:
        """Whether the noise differs from client to client by design, so that it goes on after the distribution."""
        return self.client_spread > 0 or self.fully_noisy_class

    @property
    def expected_ratio(self) -> float:
        """The share of wrong labels that tau = "known" stands for; with a whole class wrong still the paper's epsilon.

        >>> NoiseSpec(ratio=0.2).expected_ratio, NoiseSpec(kind="human").expected_ratio
        (0.2, 0.4021)
        """
        return cifar10n.RATES[self.labels] if self.kind == "human" else self.ratio

    @property
    def text(self) -> str:
        """The noise in a few words.

        >>> NoiseSpec(client_spread=0.2, fully_noisy_class=True).text
        'symmetric 0.4 ± 0.2, one class entirely wrong'
        >>> NoiseSpec(kind="human").text
        'human worse'
        """
        if self.kind == "human":
            return f"human {self.labels}"
        spread = f" ± {self.client_spread:g}" if self.client_spread else ""
        return f"{self.kind} {self.ratio:g}{spread}" + (", one class entirely wrong" if self.fully_noisy_class else "")


@dataclass(frozen=True)
class SplitSpec:
    """Everything that a federated data set is a function of."""

    data: DataSpec
    noise: NoiseSpec
    clients: int
    seed: int
    centralized: bool = False  # one owner holds all samples
