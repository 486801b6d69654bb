"""The results that a coordinator writes after the last round: the model and the summary."""

from collections.abc import Sequence
from dataclasses import dataclass

from rofl.audit.result import AuditMetrics
from rofl.config.schema import Experiment
from rofl.data.federated import FederatedDataset
from rofl.data.preprocessing import AnyPreprocessing, encoder_preprocessing, preprocessing_of, user_preprocessing
from rofl.data.user import parse_columns
from rofl.federation.site_registry import SiteRegistry
from rofl.federation.site_report import SiteReports, count_suggestions, noise_from_reports
from rofl.simulation.network_spec import NetworkSpec
from rofl.training.guard import judge_counts
from rofl.training.records import RunSummary, SiteRecord
from rofl.training.run_dir import RunDir
from rofl.training.run_outcome import training_summary
from rofl.training.run_progress import Trained
from rofl.training.saved_model.model_files import ModelRecord


@dataclass(frozen=True)
class ServerOutcome:
    """The outcome of a run with sites.

    Attributes:
        experiment: The settings.
        network: The trained network.
        trained: The outcome of all rounds.
        reports: The sites' audits of their labels.
        federated: The data set that the settings name; None if all data is at the sites.
    """

    experiment: Experiment
    network: NetworkSpec
    trained: Trained
    reports: SiteReports
    federated: FederatedDataset | None

    @property
    def classes(self) -> Sequence[str]:
        """The names of the classes."""
        return self.federated.images.classes if self.federated else self.experiment.data.classes

    def write(self, run_dir: RunDir, registry: SiteRegistry) -> RunSummary:
        """Write the model's files and then summary.json, which marks the run as finished; return the summary."""
        columns = self.experiment.data.columns
        encoder = parse_columns(columns) if columns else None
        form: AnyPreprocessing = user_preprocessing(self.network.shape)
        if encoder is not None:
            form = encoder_preprocessing(encoder, self.network.shape[0])
        elif self.federated is not None:
            form = preprocessing_of(self.federated.images)
        run_dir.model.write_encoder(encoder)
        record = ModelRecord.of(self.experiment.name, self.network, tuple(self.classes), form)
        run_dir.model.write_base(self.network)
        run_dir.model.write_record(record.with_weights(self.trained.selected_state.model))
        summary = self._summary(registry)
        run_dir.write_summary(summary)
        return summary

    def _summary(self, registry: SiteRegistry) -> RunSummary:
        reports, known, federated = self.reports, self.reports.by_client, self.federated
        sites = {client: registry.sites[client] for client in sorted(registry.sites)}
        missing = [registry.name(client) for client in registry.members if client not in reports.finished]
        note = " ".join(f"{name} did not finish." for name in missing)
        noise_ratio = federated.noise_ratio if federated and federated.images.truth_known else None
        metrics = AuditMetrics(
            detection=None,
            audit=None,
            estimated=noise_from_reports(sites, reports),
            classes=list(self.classes),
            shape=list(self.network.shape),
        )
        site_records = {
            site.name: SiteRecord(samples=site.samples, flagged=known[client].flagged if client in known else None)
            for client, site in sites.items()
            if client in reports.finished
        }
        found, selected = reports.counts, self.trained.selected_round
        warnings = judge_counts(count_suggestions(found), self.classes, selected) if found else []
        summary = training_summary(self.experiment, self.trained, warnings, noise_ratio, note).with_audit(metrics)
        return summary.model_copy(update={"sites": site_records})
