"""The HTML page of an audit of new data by a run's model."""

from datetime import datetime
from pathlib import Path

from rofl.data.atomic import atomic_write
from rofl.report import formatting
from rofl.report.audience import Audience, visible_audit
from rofl.report.environment import Section, render, render_document
from rofl.report.finished_runs import AuditedData
from rofl.report.large_pictures import ImageMode
from rofl.report.sections.feature_map import feature_map
from rofl.report.sections.gallery import gallery, hidden_gallery
from rofl.report.sections.noise_heatmap import client_table, noise_heatmap
from rofl.report.sections.other_issues import other_issues
from rofl.report.visible_suspects import PageImages, collect_suspects, contents, eyebrow


def write_audit_page(
    data: AuditedData, out: str | Path | None, audience: Audience, images: ImageMode = "thumbnails"
) -> Path:
    """Write the page of an audit of new data, and return its path.

    Args:
        data: the folder of the audit, and its record.
        out: the file; by default `audience.file_name(data)` in that folder.
        audience: who reads it.
        images: how the page shows large images: not at all, as links or as embedded copies.

    Raises:
        UserError: there is no such site, or the page cannot be written.
    """
    path = Path(out) if out is not None else data.folder.path / audience.file_name(data)
    audit, record = visible_audit(data, audience), data.summary
    suspects = collect_suspects(data, audit, audience, PageImages(images, path.parent))
    sections = [
        client_table(audit.clients, judge=f"the model of {Path(record.model).name} ({record.method})"),
        noise_heatmap(data),
        feature_map(audit, record.classes),
        hidden_gallery() if audience.server else gallery(suspects),
        other_issues(audit.issues, suspects.federated, suspects.originals),
        _provenance(data),
    ]
    flagged, samples = sum(one.flagged for one in audit.clients), sum(one.samples for one in audit.clients)
    facts = {
        "Suspects": f"{formatting.count(flagged)} of {formatting.count(samples)} labels",
        "Expected wrong": _expected(audit.expected, samples),
        "Judged by": f"the model of {record.model}",
        "Classes": formatting.count(len(record.classes)),
        **({"Note": record.warning} if record.warning else {}),
    }
    page = render_document(
        "page.html.j2",
        f"Labels of {record.data.title}",
        sections,
        eyebrow=eyebrow(audience).replace("report", "audit", 1),
        run_facts=facts,
        contents=contents(audience, audit, suspects),
    )
    atomic_write(path, page)
    return path


def _expected(wrong: float | None, samples: int) -> str:
    if wrong is None:
        return "not known: the model is unsure of most samples"
    return f"{formatting.count(round(wrong))} ({formatting.share(wrong / max(samples, 1))})"


def _provenance(data: AuditedData) -> Section:
    record, path = data.summary, data.folder.path.resolve()
    judged = datetime.fromtimestamp((path / "audit.json").stat().st_mtime)
    entries = {
        "Judged": f"{judged:%Y-%m-%d %H:%M}",
        "Data": record.data.path,
        "Model": record.model,
        "Method": record.method,
        "Digest of the model": record.digest,
        **record.versions,
    }
    return Section(render("audit_provenance.html.j2", name=path.name, entries=entries))
