"""Settings of the data: the samples, their distribution over clients, and the label noise."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from rofl.core.settings import Spec
from rofl.data.dataset_registry import DATASETS
from rofl.data.noise_spec import NoiseSpec
from rofl.data.user import SUFFIXES, UserSource
from rofl.errors import UserError

IN_MEMORY = "memory"  # `data.name` of samples that the caller holds: rofl.run(experiment, data=...)
USER_DATA = "own"  # `data.name` of user data, in settings and summaries


class DataSpec(Spec):
    """The table `data`: which samples are used, and how they are distributed over clients.

    Attributes:
        name: a published data set, "own" for user data (`path`), or "memory" for samples that the caller holds.
        train: use only the first `train` training samples; None for all.
        test: use only the first `test` test samples; None for all.
        validation: evaluate on this many validation images instead of the test part; for choosing settings.
        validation_share: the share of each client's samples that is held out; the best round is chosen by agreement
            with their given labels.
        partition: how the samples are distributed. iid: equal random parts; shards: few classes each; dirichlet:
            unequal class shares; bernoulli: FedCorr's, some classes each in unequal shares; classes: a fixed number of
            classes each; quantity: unequal sizes; sampled: each client draws from the whole set; natural: by the
            clients of user data.
        samples_per_client: of partition = sampled.
        alpha: the concentration of partition = dirichlet, bernoulli and quantity; smaller is more unequal.
        class_probability: the probability that a client holds a class, for partition = bernoulli.
        client_classes: classes of each client, of partition = classes.
        shards: pieces of each client, of partition = shards.
        min_samples: the least number of samples of a client.
        brightness: each client's images are scaled by a factor from 1 - brightness to 1 + brightness.
        split: a file of `rofl split`, whose labels and clients are used instead of new draws.
        labels: a file of `rofl audit --labels-out` with corrected labels.
        path: user data: a folder, or a .csv, .parquet or .npz file.
        test_path: the test part of user data, if that is another folder or file.
        holdout: the share of user data that is held out, if it has no test part.
        side: the side in pixels of user images, which are resized to squares; 0 to choose from their sizes.
        channels: of user images, 1 for grey and 3 for colours; 0 to choose from their pixels.
        tokenizer: of texts: a folder with tokenizer.json, as the network hf:FOLDER needs it; "" to hash words.
        fingerprint: the fingerprint of user data, which must not change before a resume; "" for any.
        classes: the classes that the sites of a federation agreed on.
        columns: the encoder of tables or texts that the sites of a federation agreed on, as JSON.
        min_rows: for such columns: values that occur in fewer rows, and columns with fewer numbers, count as missing. A
            site sets it by its policy.
        client_index: use only this client, at a site; -1 for all.
        client_name: the name of a site's client.
    """

    name: str = "digits"
    train: Annotated[int, Field(ge=1)] | None = None
    test: Annotated[int, Field(ge=1)] | None = None
    validation: Annotated[int, Field(ge=0)] = 0
    validation_share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    partition: Literal["iid", "shards", "dirichlet", "bernoulli", "classes", "quantity", "sampled", "natural"] = "iid"
    samples_per_client: Annotated[int, Field(ge=2)] = 50
    alpha: Annotated[float, Field(gt=0)] = 0.5
    class_probability: Annotated[float, Field(gt=0, le=1)] = 0.7
    client_classes: Annotated[int, Field(ge=1)] = 2
    shards: Annotated[int, Field(ge=1)] = 2
    min_samples: Annotated[int, Field(ge=1)] = 2
    brightness: Annotated[float, Field(ge=0, lt=1)] = 0.0
    split: str = ""
    labels: str = ""
    path: str = ""
    test_path: str = ""
    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.2
    side: Annotated[int, Field(ge=0, le=1024)] = 0
    channels: Literal[0, 1, 3] = 0
    tokenizer: str = ""
    fingerprint: str = ""
    classes: tuple[str, ...] = ()
    columns: str = ""
    min_rows: Annotated[int, Field(ge=0)] = 0
    client_index: Annotated[int, Field(ge=-1)] = -1
    client_name: str = ""

    @model_validator(mode="before")
    @classmethod
    def _set_user_defaults(cls, settings: Any) -> Any:
        """Set the name of user data; keep its clients unless another partition is set."""
        if not isinstance(settings, Mapping) or not settings.get("path"):
            return settings
        return {"partition": "natural", **settings, "name": USER_DATA}

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name not in (USER_DATA, IN_MEMORY):
            DATASETS.find(name)
        return name

    @field_validator("side")
    @classmethod
    def _check_side(cls, side: int) -> int:
        if 0 < side < 4:
            raise ValueError("0, or 4 and more")
        return side

    @model_validator(mode="after")
    def _check_together(self) -> "DataSpec":
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
        """The source of user data, as `load_user_data` takes it."""
        return UserSource(
            self.path,
            self.test_path,
            self.holdout,
            self.side,
            self.channels,
            self.fingerprint,
            self.classes,
            tokenizer=self.tokenizer,
            columns=self.columns,
            min_rows=self.min_rows,
        )

    @property
    def is_user_data(self) -> bool:
        """Whether the samples are the user's: in files on this machine, or at the sites of a federation."""
        return bool(self.path) or self.at_sites

    @property
    def at_sites(self) -> bool:
        """Whether the samples are at the sites of a federation, and this machine only coordinates."""
        return self.name == USER_DATA and not self.path and bool(self.classes)

    @property
    def title(self) -> str:
        """A readable name of the data.

        >>> DataSpec().title, DataSpec(path="/home/me/x-rays/").title
        ('digits', 'x-rays')
        """
        path = Path(self.path)
        name = path.stem if path.suffix.casefold() in SUFFIXES else path.name  # a folder's name may contain a dot
        return (name or USER_DATA) if self.path else self.name


@dataclass(frozen=True)
class SplitSpec:
    """The settings that determine a federated data set.

    Attributes:
        data: the samples and their partition.
        noise: the label noise.
        clients: the number of clients.
        seed: of all random draws.
        centralized: whether one client holds all samples.
    """

    data: DataSpec
    noise: NoiseSpec
    clients: int
    seed: int
    centralized: bool = False
