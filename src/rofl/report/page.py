"""The page of runs: run folders in, one HTML file out.

The sections and their order are in `_render_page`; each has a module in `rofl.report.sections`. What a section may
show of samples comes from `visible_audit`.
"""

from collections.abc import Sequence
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.report.audience import Audience, VisibleAudit, visible_audit
from rofl.report.environment import render_document
from rofl.report.finished_runs import FinishedRun, Group, group_runs, read_runs
from rofl.report.sections.accuracy_chart import accuracy_chart
from rofl.report.sections.client_table import client_table
from rofl.report.sections.comparison import comparison
from rofl.report.sections.feature_map import feature_map
from rofl.report.sections.gallery import GalleryData, gallery, hidden_gallery
from rofl.report.sections.guard_warnings import guard_warnings
from rofl.report.sections.headline import headline, page_title, run_facts
from rofl.report.sections.noise_heatmap import noise_heatmap
from rofl.report.sections.provenance import provenance

_EVERYONE = Audience()


def write_report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    data_dir: Path | None = None,
    audience: Audience = _EVERYONE,
) -> Path:
    """Write finished runs as one self-contained HTML page; `rofl report` calls this.

    Clients, suspects and pictures are those of the main run: the first whose method has centroids, else the first.

    Args:
        folders: run folders; runs that differ only by seed are put together.
        out: the file; by default report.html, report-<site>.html or report-server.html in the first folder.
        data_dir: where the data sets lie, for the pictures; by default $ROFL_DATA.
        audience: who reads it: `Audience(site="name")` sees samples of that client only, `Audience(server=True)` none.

    Returns:
        The path of the file.

    Raises:
        UserError: a folder holds no finished run, there is no such site, or the page cannot be written.
    """
    groups = group_runs(read_runs([Path(folder) for folder in folders]))
    path = Path(out) if out is not None else Path(folders[0]) / audience.file_name(groups[0].runs[0])
    page = _render_page(groups, data_dir, audience)
    try:
        atomic_write(path, page)
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}).", "another file name") from error
    return path


def _render_page(groups: Sequence[Group], data_dir: Path | None, audience: Audience) -> str:
    """Return the HTML of the page.

    Args:
        groups: the runs; the first one of the first group is the main run.
        data_dir: where the data sets lie.
        audience: who reads the page.
    """
    runs = [run for group in groups for run in group.runs]
    main = groups[0].runs[0]
    audit = visible_audit(main, audience)
    suspects = _gallery_data(main, audit, audience, data_dir)
    sections = [
        headline(groups),
        guard_warnings(runs),
        comparison(groups),
        accuracy_chart(groups),
        client_table(audit.clients, judge=f"{groups[0].label} (seed {main.experiment.seed})"),
        noise_heatmap(main),
        feature_map(audit, main.classes),
        hidden_gallery() if audience.server else gallery(suspects),
        provenance(runs),
    ]
    return render_document(
        "page.html.j2",
        page_title(runs),
        sections,
        eyebrow=_eyebrow(audience),
        run_facts=run_facts(runs),
        contents=_contents(audience, audit, suspects),
    )


def _gallery_data(run: FinishedRun, audit: VisibleAudit, audience: Audience, data_dir: Path | None) -> GalleryData:
    """Return the suspects that the reader may see, with their images where these can be loaded."""
    suspects = audit.suspects
    federated, missing_images = _load_images(run, data_dir) if suspects else (None, "")
    name = run.folder.path.resolve().name if audience.site is None else audience.site
    return GalleryData(
        suspects,
        run.classes,
        safe_names([name])[0],
        storage_key=f"rofl decisions {run.summary.digest} {audience.site or ''}",
        federated=federated,
        missing_images=missing_images,
        truth_known=run.truth_known,
    )


def _load_images(run: FinishedRun, data_dir: Path | None) -> tuple[FederatedDataset | None, str]:
    """Load the run's data; where that fails, return None and why: a page without pictures is still of use."""
    try:
        return load_federated(run.experiment.split, data_dir), ""
    except UserError as error:
        return None, error.sentence


def _eyebrow(audience: Audience) -> str:
    """Return the line above the title, which says whose page it is."""
    if audience.server:
        return "rofl report for the server"
    return "rofl report" if audience.site is None else f"rofl report for {audience.site}"


def _contents(audience: Audience, audit: VisibleAudit, suspects: GalleryData) -> str:
    """Return the sentence at the end of the page that says what it reveals about samples."""
    if audience.server:
        return "This page holds no picture and no sample's name or features, only counts for each client."
    if not suspects.suspects and audit.features is None:
        return "This page holds no picture and names no sample."
    verb = "shows" if suspects.has_pictures else "names"
    clients = "all clients" if audience.site is None else f"{audience.site}, and of no other client"
    return f"This page {verb} samples of {clients}: keep it as you keep the data."
