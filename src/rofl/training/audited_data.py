"""Audits of new data with the model of a run: loading the data, and the record of the audit."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rofl.audit.result import NoiseEstimate
from rofl.config.schema import Experiment
from rofl.core.version import __version__
from rofl.data import load_dataset as load_named
from rofl.data import user
from rofl.data.dataset import Dataset
from rofl.data.federated import FederatedDataset
from rofl.data.noise_spec import NoiseSpec
from rofl.data.specs import DataSpec, SplitSpec
from rofl.data.user.encoders import Encoder
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.network_choice import network_spec
from rofl.training.records import AuditRecord, RunSummary
from rofl.training.run_dir import RunDir


@dataclass(frozen=True)
class FinishedModel:
    """The saved model of a finished run, with everything that an audit needs."""

    path: Path
    experiment: Experiment
    summary: RunSummary
    server_state: ServerState
    encoder: Encoder | None  # of a table or of texts

    @classmethod
    def read(cls, path: Path) -> "FinishedModel":
        """Read a run folder.

        Raises:
            UserError: the run is not finished, or its version is too old to audit new data.
        """
        folder = RunDir(path)
        summary = folder.read_summary()
        saved = folder.checkpoints.read_saved_model(summary)
        model = cls(path, folder.read_experiment(), summary, saved, folder.model.read_encoder())
        if not summary.classes:
            raise UserError(f"{path} was audited by an older version.", f"rofl audit {path}, then this again")
        if summary.shape[1] == 1 and model.encoder is None:
            raise UserError(f"{path} was trained on a table and has no encoder.json.", f"rofl audit {path} writes it")
        return model

    def network(self, experiment: Experiment, images: Dataset) -> NetworkSpec:
        """Return the network of the saved model.

        Args:
            experiment: the run's settings.
            images: the audited data; runs of old versions did not record the shape.
        """
        folder = RunDir(self.path)
        record = folder.model.read_record()
        return network_spec(experiment, images) if record is None else record.network_spec(folder.model.base_path)

    def record(self, data: DataSpec, estimated: NoiseEstimate) -> AuditRecord:
        """Return the record of an audit of new data by this model."""
        return AuditRecord(
            model=str(self.path.absolute()),
            method=self.summary.method,
            digest=self.summary.selected_digest or self.summary.digest,
            data=data,
            classes=self.summary.classes,
            estimated=estimated,
            versions={"rofl": __version__, "torch": torch.__version__},
            model_accuracy=self.summary.model_accuracy,
            tested_as_given=self.summary.noise.achieved is None,
        )

    def load_data(
        self, data: Path, data_dir: Path | None = None, progress: user.Progress | None = None
    ) -> tuple[FederatedDataset, Experiment]:
        """Load new data in the form that the model expects; all samples are audited.

        Args:
            data: in a form of docs/own-data.md.
            data_dir: the folder of published data sets, for a model that was trained on one.
            progress: called with the number of decoded images and their total.

        Returns:
            The data with its owners as clients, and the run's settings with this data.
        """
        channels, side, _ = (0, 0, 0) if self.encoder else self.summary.shape  # a table has none
        spec = DataSpec(path=str(data.absolute()), side=side, channels=channels)
        federated = load_audited(spec, self.summary.classes, self.encoder, progress)
        if not self.experiment.data.path:
            transform = load_named(self.experiment.data.name, data_dir).transform
            federated = replace(federated, images=replace(federated.images, transform=transform))
        about = {"data": federated.spec.data, "clients": len(federated.parts), "cohort": 1, "setting": "federated"}
        chosen = self.experiment.model_copy(update=about)
        return replace(federated, spec=chosen.split), chosen


def load_audited(
    spec: DataSpec,
    classes: list[str],
    encoder: Encoder | None = None,
    progress: user.Progress | None = None,
) -> FederatedDataset:
    """Load the data of an audit: all samples, with their owners as clients.

    Args:
        spec: the path of the data, and the size of images.
        classes: the classes of the model.
        encoder: the model's encoder, if it was trained on a table.
        progress: called with the number of decoded images and their total.

    Raises:
        UserError: the data cannot be read, has classes that the model does not know, or has changed.
    """
    images = user.load_for_audit(spec.source, classes, encoder, progress)
    if spec.fingerprint not in ("", images.fingerprint):
        raise UserError(f"The data in {spec.path} has changed since it was audited.", "rofl audit it again")
    owners = images.owners if images.owners is not None else torch.zeros(len(images.train_labels), dtype=torch.long)
    spec = spec.model_copy(update={"fingerprint": images.fingerprint})
    clients = images.clients or (spec.title,)
    parts = [(owners == client).nonzero().flatten() for client in range(len(clients))]
    images = replace(images, owners=owners, clients=clients)
    split = SplitSpec(spec, NoiseSpec(ratio=0.0), len(clients), seed=0)
    return FederatedDataset(images, images.train_labels, parts, split)
