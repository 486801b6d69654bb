"""The page: run folders in, one HTML file out that needs nothing but itself."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rofl.data import atomic
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.report import charts, headline
from rofl.report.audience import Audience, VisibleAudit, visible_audit
from rofl.report.client_table import client_table
from rofl.report.document import Section, document, fill
from rofl.report.finished_runs import FinishedRun, Group, grouped, read_all
from rofl.report.gallery import GalleryData, gallery
from rofl.report.noise_heatmap import transition
from rofl.report.provenance import provenance
from rofl.report.tsne import embedding

_EVERYTHING = Audience()


def write_report(
    folders: Sequence[Path], out: Path | None = None, data_dir: Path | None = None, audience: Audience = _EVERYTHING
) -> Path:
    """Turn finished runs into one self-contained HTML page.

    Clients, suspects and pictures are those of the main run: the first whose method has centroids, else the first.

    Args:
        folders: run folders; runs that differ only by seed are put together.
        out: the file; where absent report.html, report-<site>.html or report-server.html in the first folder.
        data_dir: where the data sets lie, for the pictures; $ROFL_DATA where absent.
        audience: who reads it: `Audience(site="name")` sees samples of that client only, `Audience(server=True)` none.

    Returns:
        The file.

    Raises:
        UserError: a folder holds no finished run, there is no such site, or the page cannot be written.
    """
    groups = grouped(read_all([Path(folder) for folder in folders]))
    place = Path(out) if out is not None else Path(folders[0]) / audience.file(groups[0].runs[0])
    page = _page(groups, data_dir, audience)
    try:
        atomic.atomic_write(place, page)
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror}).", "another file name") from error
    return place


def _page(groups: Sequence[Group], data_dir: Path | None, audience: Audience) -> str:
    runs = [run for group in groups for run in group.runs]
    main = groups[0].runs[0]
    found = visible_audit(main, audience)
    pile = _pile(main, found, audience, data_dir)
    mistakes, picture, cards = transition(main), embedding(found, main.classes), _cards(pile, audience)
    return document(
        "page.html",
        headline.title(runs),
        [charts.accuracy_script(groups), mistakes.script, picture.script, cards.script],
        ["gallery.css"],
        reader=escape(_reader(audience)),
        facts=headline.facts(runs),
        accuracies=headline.accuracies(groups),
        main=escape(groups[0].label),
        tiles=headline.tiles(groups[0]),
        comparison=headline.comparison(groups),
        chart_id=charts.CHART_ID,
        judge=escape(f"{groups[0].label} (seed {main.experiment.seed})"),
        clients=client_table(found.clients),
        transition=mistakes.html,
        embedding=picture.html,
        gallery=cards.html,
        provenance=provenance(runs),
        holds=escape(_holds(audience, found, pile)),
    )


def _pile(run: FinishedRun, found: VisibleAudit, audience: Audience, data_dir: Path | None) -> GalleryData:
    """The suspects to go through, with their images where these can be had."""
    suspects = found.suspects
    federated, trouble = _scene(run, data_dir) if suspects else (None, "")
    name = run.folder.path.resolve().name if audience.site is None else audience.site
    key = f"rofl decisions {run.summary.digest} {audience.site or ''}"
    return GalleryData(suspects, run.classes, safe_names([name])[0], key, federated, trouble, run.truth_known)


def _scene(run: FinishedRun, data_dir: Path | None) -> tuple[FederatedDataset | None, str]:
    """The images again; a page without pictures is still worth having where the data are not at hand."""
    try:
        return load_federated(run.experiment.split, data_dir), ""
    except UserError as error:
        return None, error.sentence


def _cards(pile: GalleryData, audience: Audience) -> Section:
    if audience.server:
        return Section(fill("no_gallery.html", lead="Suspects are shown to their owners: on each site's own page."))
    return gallery(pile)


def _reader(audience: Audience) -> str:
    """Whose page it is."""
    if audience.server:
        return "rofl report for the server"
    return "rofl report" if audience.site is None else f"rofl report for {audience.site}"


def _holds(audience: Audience, found: VisibleAudit, pile: GalleryData) -> str:
    """What the page gives away."""
    if audience.server:
        return "This page holds no picture and no sample's name or features, only counts for each client."
    if not pile.suspects and found.features is None:
        return "This page holds no picture and names no sample."
    verb, site = "shows" if pile.has_pictures else "names", audience.site
    whose = "all clients" if site is None else f"{site}, and of no other client"
    return f"This page {verb} samples of {whose}: keep it as you keep the data."
