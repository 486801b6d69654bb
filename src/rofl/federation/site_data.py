"""The data of a site: its own samples, or its part of a public data set."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from secrets import token_bytes

from flwr.app import Context

from rofl.config.schema import Experiment, experiment_from_toml
from rofl.data import Dataset, user
from rofl.data.pretrained_weights import is_plain_name
from rofl.errors import UserError
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_client import SiteClient
from rofl.federation.site_info import SiteInfo
from rofl.models.hf_network import PREFIX
from rofl.training.inputs import load_inputs


@dataclass
class _SiteData(ABC):
    """Creates the site's client for the settings of a run, and caches it.

    Attributes:
        out: The run folder that the site writes at the end; None for none.
        data_dir: The folder of published data sets; $ROFL_DATA if None.
        noise_key: The secret from which the site's noise for differential privacy is derived.
    """

    out: Path | None = None
    data_dir: Path | None = None
    noise_key: bytes = field(default_factory=partial(token_bytes, 32), repr=False)
    _clients: dict[tuple[str, int], SiteClient] = field(default_factory=dict)  # by settings and client number

    def client(self, request: RoundRequest, context: Context) -> SiteClient:
        """Return the client for the settings of a request; equal settings return the same object.

        Raises:
            UserError: If the settings name a file of this site, or do not fit its data.
        """
        number = client_number(context)
        if (request.settings, number) not in self._clients:
            experiment = experiment_from_toml(request.settings)
            _refuse_files(experiment)
            local, images = self.localize_config(_without_unused_weights(experiment), number)
            federated, network = load_inputs(local, self.data_dir, images)
            for key in [key for key in self._clients if key[0] != request.settings]:
                del self._clients[key]  # of an earlier run
            method = experiment.build_method(self.noise_key)  # nobody else can reproduce its noise
            self._clients[request.settings, number] = SiteClient.create(
                local, method, federated, network, number, self.out
            )
        return self._clients[request.settings, number]

    @abstractmethod
    def localize_config(self, experiment: Experiment, client: int) -> tuple[Experiment, Dataset | None]:
        """Return the coordinator's settings as this site reads them, and the data set if it is already loaded."""


def client_number(context: Context) -> int:
    """Return the client's number, counted from 0, with which its SuperNode was started."""
    return int(context.node_config["partition-id"])


def _without_unused_weights(experiment: Experiment) -> Experiment:
    """Return the settings without `model.weights` if all weights come from the coordinator."""
    spec = experiment.model
    if spec.keeps_base or not spec.weights:
        return experiment
    return experiment.model_copy(update={"model": spec.model_copy(update={"weights": ""})})


def _refuse_files(experiment: Experiment) -> None:
    """Refuse settings that contain a path, since an error would tell the coordinator whether the path exists.

    Plain names of weights and networks are allowed; they are looked up in this site's folder for them.
    """
    data = experiment.data
    named = {"data.path": data.path, "data.test_path": data.test_path, "data.labels": data.labels}
    named |= {"data.split": data.split, "data.tokenizer": data.tokenizer}
    weights, model = experiment.model.weights, experiment.model.name
    if weights and not is_plain_name(weights):
        named["model.weights"] = weights
    if model.startswith(PREFIX) and not is_plain_name(model.removeprefix(PREFIX)):
        named["model.name"] = model
    for key, value in named.items():
        if value:
            raise UserError(f"The coordinator's settings name a file of this site, by {key}.", "settings without it")


@dataclass
class PartitionedData(_SiteData):
    """The client's part of a public data set, for rehearsals, tests and Flower's own simulation.

    Attributes:
        name: The site's name; "client N" if empty.
    """

    name: str = ""

    def describe(self, request: RoundRequest, context: Context) -> SiteInfo:
        """Return this client's number and its number of samples."""
        number = client_number(context)
        if not request.settings:
            raise UserError(
                "The coordinator leaves the data to the sites, and this one has none.", "rofl join --data PATH"
            )
        samples = len(self.client(request, context).federated.labels)
        return SiteInfo(number, self.name or f"client {number}", samples)

    def localize_config(self, experiment: Experiment, client: int) -> tuple[Experiment, Dataset | None]:
        """Return the settings restricted to this client's part."""
        spec = experiment.data.model_copy(update={"client_index": client, "client_name": self.name})
        return experiment.model_copy(update={"data": spec}), None


@dataclass
class LocalData(_SiteData):
    """The site's own samples.

    Loads them once in their natural form, for the greeting, and once more only if the sites agree on another form.

    Attributes:
        name: The site's name.
        source: The path of the data, and how to read it.
        progress: Called while images are decoded.
        fewest_rows: For tables, the smallest number of rows that must have a text or a number before the text or the
            column's mean is sent; rarer texts also count as missing in agreed columns.
        tells_columns: For tables, whether the greeting describes the columns.
    """

    name: str = "site"
    source: user.UserSource = field(default_factory=lambda: user.UserSource(""))
    progress: user.Progress | None = None
    fewest_rows: int = 10
    tells_columns: bool = True
    _images: Dataset | None = None  # in the last loaded form
    _info: SiteInfo | None = None

    def load(self) -> SiteInfo:
        """Load the samples in their natural form and return the greeting, with client number 0."""
        if self._info is None:
            images = self._images = user.load_user_data(replace(self.source, one_class=True), self.progress)
            facts, (channels, side, _) = (0, self.name, len(images.train_labels)), images.shape
            if images.encoder is None:
                self._info = SiteInfo(*facts, side, channels, images.classes)
            else:
                self._info = SiteInfo(*facts, classes=images.classes, columns=self._columns(images.encoder))
        return self._info

    def describe(self, request: RoundRequest, context: Context) -> SiteInfo:
        """Return the greeting, which contains no sample and no label of one."""
        return replace(self.load(), client=client_number(context))

    def localize_config(self, experiment: Experiment, client: int) -> tuple[Experiment, Dataset | None]:
        """Return the settings for this site as the only client, and its data in the agreed form.

        Raises:
            UserError: If the coordinator trains on a published data set.
        """
        agreed = experiment.data
        if not agreed.at_sites:
            raise UserError(
                f"The coordinator trains on {agreed.title}, not on this site's own data.",
                "rofl join without --data",
            )
        spec = agreed.model_copy(
            update={
                "path": str(Path(self.source.path).absolute()),
                "test_path": self.source.test_path,
                "partition": "iid",
                "client_name": self.name,
                "min_rows": self.fewest_rows if agreed.columns else 0,
            }
        )
        images = self._in_form(spec.source)
        spec = spec.model_copy(update={"fingerprint": images.fingerprint})
        return experiment.model_copy(update={"data": spec, "clients": 1, "cohort": 1}), images

    def _in_form(self, source: user.UserSource) -> Dataset:
        """Return the samples in the agreed form, and reuse loaded ones if they have that form."""
        info = self.load()
        same_images = (info.side, info.channels, info.classes) == (source.side, source.channels, source.classes)
        if source.columns and not info.columns:
            raise UserError("The sites agreed on a table or on texts, and this site has images.")
        if self._images is None or not same_images or source.holdout != self.source.holdout:
            self._images = user.load_user_data(replace(source, fingerprint=""), self.progress)
        images, self._images = self._images, None  # the client keeps it from now on
        return images

    def _columns(self, encoder: user.Encoder) -> str:
        """Return the description of the table's columns as JSON, with facts about enough rows only."""
        if not self.tells_columns and isinstance(encoder, user.TableEncoder):
            return user.TableEncoder(columns=()).model_dump_json()
        listing = user.list_samples(self.source)
        rows = [each.content for each in listing.samples if not each.test and isinstance(each.content, tuple)]
        return user.describe_columns(encoder, listing.features, rows, self.fewest_rows).model_dump_json()
