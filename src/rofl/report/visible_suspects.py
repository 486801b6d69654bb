"""The suspects that a page's audience may see, with their images, and the texts that say whom a page is for."""

from dataclasses import dataclass
from pathlib import Path

from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.originals import find_originals
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.report.audience import Audience, VisibleAudit
from rofl.report.environment import Section
from rofl.report.finished_runs import Audited, AuditedData
from rofl.report.large_pictures import ImageMode
from rofl.report.sections.gallery import GalleryData, with_large_pictures
from rofl.report.sections.reliability_chart import score_reliability_chart
from rofl.training.audited_data import load_audited


@dataclass(frozen=True)
class PageImages:
    """How a page shows images."""

    mode: ImageMode
    folder: Path  # of the page


def collect_suspects(
    run: Audited, audit: VisibleAudit, audience: Audience, images: PageImages, data_dir: Path | None = None
) -> GalleryData:
    """Return the suspects that the audience may see, with their images if these can be loaded.

    Args:
        run: a finished run, or an audit of new data.
        audit: the part that the audience may see.
        audience: who reads the page.
        images: how the page shows images.
        data_dir: the folder of published data sets.
    """
    suspects = audit.suspects
    federated, missing_images = _load_images(run, data_dir) if suspects or audit.issues else (None, "")
    name = run.folder.path.resolve().name if audience.site is None else audience.site
    of_data = run.summary.data.fingerprint if isinstance(run, AuditedData) else ""
    data = GalleryData(
        suspects,
        run.classes,
        safe_names([name])[0],
        storage_key=f"rofl decisions {run.summary.digest}{of_data} {audience.site or ''}",
        federated=federated,
        missing_images=missing_images,
        truth_known=run.truth_known,
        originals=None if federated is None else find_originals(federated),
        unflagged_note=audit.unflagged_note,
    )
    return with_large_pictures(data, images.mode, images.folder)


def score_quality(data: GalleryData, audit: VisibleAudit) -> Section:
    """Return the chart of the share of wrong labels by score; empty if the true labels are unknown."""
    if data.federated is None or not data.truth_known or not audit.rows:
        return Section()
    wrong = data.federated.wrong[[row.row for row in audit.rows]]
    return score_reliability_chart([row.score for row in audit.rows], wrong)


def eyebrow(audience: Audience) -> str:
    """Return the line above the title, which names the audience."""
    if audience.server:
        return "rofl report for the server"
    return "rofl report" if audience.site is None else f"rofl report for {audience.site}"


def contents(audience: Audience, audit: VisibleAudit, suspects: GalleryData) -> str:
    """Return the sentence at the end of the page that says what it reveals about samples.

    Args:
        audience: who reads the page.
        audit: the part of the audit that they may see.
        suspects: the suspects, with or without pictures.
    """
    if audience.server:
        return "This page holds no picture and no sample's name or features, only counts for each client."
    if not suspects.suspects and audit.features is None:
        return "This page holds no picture and names no sample."
    verb = "shows" if suspects.has_pictures else "names"
    clients = "all clients" if audience.site is None else f"{audience.site}, and of no other client"
    return f"This page {verb} samples of {clients}: keep it as you keep the data."


def _load_images(run: Audited, data_dir: Path | None) -> tuple[FederatedDataset | None, str]:
    """Load the data; on failure return None and the reason, since a page without pictures is still useful."""
    try:
        if isinstance(run, AuditedData):
            return load_audited(run.summary.data, run.classes, run.folder.model.read_encoder()), ""
        return load_federated(run.experiment.split, data_dir), ""
    except UserError as error:
        return None, error.sentence
