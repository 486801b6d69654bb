"""The page: run folders in, one HTML file out that needs nothing but itself."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rofl import atomic
from rofl.data.own.names import safe_names
from rofl.errors import UserError
from rofl.report import charts, figures
from rofl.report.clients import client_table
from rofl.report.document import Section, document, fill
from rofl.report.embedding import embedding
from rofl.report.gallery import Pile, gallery
from rofl.report.provenance import provenance
from rofl.report.runs import FinishedRun, Group, grouped, read_all
from rofl.report.transition import transition
from rofl.report.views import Evidence, View, evidence
from rofl.scene import Scene, prepare

_EVERYTHING = View()


def write(
    folders: Sequence[Path], out: Path | None = None, data_dir: Path | None = None, view: View = _EVERYTHING
) -> Path:
    """Turn finished runs into one self-contained HTML page.

    Clients, suspects and pictures are those of the main run: the first whose method has centroids, else the first.

    Args:
        folders: run folders; runs that differ only by seed are put together.
        out: the file; where absent report.html, report-<site>.html or report-server.html in the first folder.
        data_dir: where the data sets lie, for the pictures; $ROFL_DATA where absent.
        view: who reads it: `View(site="name")` has samples of that client only, `View(server=True)` of none.

    Returns:
        The file.

    Raises:
        UserError: a folder holds no finished run, there is no such site, or the page cannot be written.
    """
    groups = grouped(read_all([Path(folder) for folder in folders]))
    place = Path(out) if out is not None else Path(folders[0]) / view.file(groups[0].runs[0])
    page = _page(groups, data_dir, view)
    try:
        atomic.write(place, page)
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror}).", "another file name") from error
    return place


def _page(groups: Sequence[Group], data_dir: Path | None, view: View) -> str:
    runs = [run for group in groups for run in group.runs]
    main = groups[0].runs[0]
    found = evidence(main, view)
    pile = _pile(main, found, view, data_dir)
    mistakes, picture, cards = transition(main), embedding(found, main.classes), _cards(pile, view)
    return document(
        "page.html",
        figures.title(runs),
        [charts.accuracy_script(groups), mistakes.script, picture.script, cards.script],
        ["gallery.css"],
        reader=escape(_reader(view)),
        facts=figures.facts(runs),
        accuracies=figures.accuracies(groups),
        main=escape(groups[0].label),
        tiles=figures.tiles(groups[0]),
        comparison=figures.comparison(groups),
        chart_id=charts.CHART_ID,
        judge=escape(f"{groups[0].label} (seed {main.experiment.seed})"),
        clients=client_table(found.clients),
        transition=mistakes.html,
        embedding=picture.html,
        gallery=cards.html,
        provenance=provenance(runs),
        holds=escape(_holds(view, found, pile)),
    )


def _pile(run: FinishedRun, found: Evidence, view: View, data_dir: Path | None) -> Pile:
    """The suspects to go through, with their images where these can be had."""
    suspects = found.suspects
    scene, trouble = _scene(run, data_dir) if suspects else (None, "")
    name = run.folder.path.resolve().name if view.site is None else view.site
    key = f"rofl decisions {run.summary['digest']} {view.site or ''}"
    return Pile(suspects, run.classes, safe_names([name])[0], key, scene, trouble, run.truth_known)


def _scene(run: FinishedRun, data_dir: Path | None) -> tuple[Scene | None, str]:
    """The images again; a page without pictures is still worth having where the data are not at hand."""
    try:
        return prepare(run.experiment, data_dir), ""
    except UserError as error:
        return None, error.sentence


def _cards(pile: Pile, view: View) -> Section:
    if view.server:
        return Section(fill("no_gallery.html", lead="Suspects are shown to their owners: on each site's own page."))
    return gallery(pile)


def _reader(view: View) -> str:
    """Whose page it is."""
    if view.server:
        return "rofl report for the server"
    return "rofl report" if view.site is None else f"rofl report for {view.site}"


def _holds(view: View, found: Evidence, pile: Pile) -> str:
    """What the page gives away."""
    if view.server:
        return "This page holds no picture and no sample's name or features, only counts for each client."
    if not pile.suspects and found.features is None:
        return "This page holds no picture and names no sample."
    verb, site = "shows" if pile.has_pictures else "names", view.site
    whose = "all clients" if site is None else f"{site}, and of no other client"
    return f"This page {verb} samples of {whose}: keep it as you keep the data."
