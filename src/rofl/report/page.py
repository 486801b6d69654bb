"""The HTML page of finished runs: run folders in, one HTML file out.

`_render_page` lists the sections in order; each has a module in `rofl.report.sections`. Sections get the samples that
they may show from `visible_audit`.
"""

from collections.abc import Sequence
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.report.audience import Audience, visible_audit
from rofl.report.audit_page import write_audit_page
from rofl.report.environment import Section, render_document
from rofl.report.finished_runs import AuditedData, Group, group_runs, read_runs
from rofl.report.large_pictures import ImageMode
from rofl.report.sections.accuracy_chart import accuracy_chart
from rofl.report.sections.class_metrics import class_metrics
from rofl.report.sections.comparison import comparison
from rofl.report.sections.feature_map import feature_map
from rofl.report.sections.gallery import gallery, hidden_gallery
from rofl.report.sections.headline import headline, page_title, run_facts
from rofl.report.sections.noise_heatmap import client_table, noise_heatmap
from rofl.report.sections.other_issues import other_issues
from rofl.report.sections.provenance import guard_warnings, provenance
from rofl.report.sections.reliability_chart import reliability_chart
from rofl.report.visible_suspects import PageImages, collect_suspects, contents, eyebrow, score_quality
from rofl.training.run_dir import RunDir

_EVERYONE = Audience()


def write_report(
    folders: Sequence[str | Path],
    out: str | Path | None = None,
    data_dir: Path | None = None,
    audience: Audience = _EVERYONE,
    images: ImageMode = "thumbnails",
) -> Path:
    """Write finished runs as one self-contained HTML page; `rofl report` calls this.

    The page shows clients, suspects and pictures of the main run: the first whose method has centroids, else the first.

    Args:
        folders: run folders, where runs that differ only by seed are grouped; or one folder of an audit of new data.
        out: the file; by default report.html, report-<site>.html or report-server.html in the first folder.
        data_dir: the folder of published data sets, for the pictures; by default $ROFL_DATA.
        audience: who reads it: `Audience(site="name")` sees samples of that client only, `Audience(server=True)` none.
        images: "link" links to the image files, "embed" embeds larger copies, "thumbnails" does neither. Small copies
            are always embedded.

    Returns:
        The path of the file.

    Raises:
        UserError: a folder holds no finished run, there is no such site, or the page cannot be written.
    """
    if len(folders) == 1 and (record := RunDir(Path(folders[0])).audit.read_record()) is not None:
        return write_audit_page(AuditedData(RunDir(Path(folders[0])), record), out, audience, images)
    groups = group_runs(read_runs([Path(folder) for folder in folders]))
    path = Path(out) if out is not None else Path(folders[0]) / audience.file_name(groups[0].runs[0])
    page = _render_page(groups, data_dir, audience, PageImages(images, path.parent))
    atomic_write(path, page)
    return path


def _render_page(groups: Sequence[Group], data_dir: Path | None, audience: Audience, images: PageImages) -> str:
    """Return the HTML of the page.

    Args:
        groups: the runs; the first run of the first group is the main run.
        data_dir: the folder of published data sets.
        audience: who reads the page.
        images: how the page shows images.
    """
    runs = [run for group in groups for run in group.runs]
    main = groups[0].runs[0]
    audit = visible_audit(main, audience)
    suspects = collect_suspects(main, audit, audience, images, data_dir)
    sections = [
        headline(groups),
        guard_warnings(runs),
        comparison(groups),
        accuracy_chart(groups),
        *_model_quality(groups),
        client_table(audit.clients, judge=f"{groups[0].label} (seed {main.experiment.seed})"),
        noise_heatmap(main),
        feature_map(audit, main.classes),
        hidden_gallery() if audience.server else gallery(suspects),
        score_quality(suspects, audit),
        other_issues(audit.issues, suspects.federated, suspects.originals),
        provenance(runs),
    ]
    return render_document(
        "page.html.j2",
        page_title(runs),
        sections,
        eyebrow=eyebrow(audience),
        run_facts=run_facts(runs),
        contents=contents(audience, audit, suspects),
    )


def _model_quality(groups: Sequence[Group]) -> list[Section]:
    """Return the section of per-class metrics and, if the true labels are known, that of calibration.

    There are none for runs of old versions.

    The first run of each method represents it. The table is about the first method, with a column for the recall of
    each of the others.
    """
    found = {group.label: group.runs[0].folder.model.read_evaluation() for group in groups}
    known = {label: each for label, each in found.items() if each is not None}
    main = known.pop(groups[0].label, None)
    if main is None:
        return []
    names = [each.name for each in main.classes]
    others = {label: each for label, each in known.items() if [one.name for one in each.classes] == names}
    as_given = groups[0].runs[0].summary.noise.achieved is None
    chart = Section() if as_given else reliability_chart(main, others, groups[0].label)
    return [class_metrics(main, others, as_given), chart]
