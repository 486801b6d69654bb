"""What an audit found, for the terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from rofl.audit.result import AuditResult
from rofl.audit.suspect_list import SuspectRow
from rofl.cli.app import stderr
from rofl.cli.own_data import decoding
from rofl.cli.tables import share
from rofl.data.label_csv import Decision
from rofl.data.specs import DataSpec
from rofl.training import label_audit

_CLIENTS = 20  # that are listed; --json has all


def fresh_folder(data: Path) -> Path:
    """The next free folder for an audit of new data."""
    number, title = 1, DataSpec(path=str(data.absolute())).title
    while (path := Path("runs") / f"audit-{title}-{number}").exists():
        number += 1
    return path


def audit_new(model: Path, data: Path, out: Path, workers: int | None, data_dir: Path | None) -> AuditResult:
    """Judge new data by a run's model, while a bar shows how far decoding is."""
    with decoding(stderr) as progress:
        return label_audit.audit_data(model, data, out, workers=workers, data_dir=data_dir, progress=progress)


def clients_table(result: AuditResult) -> Table:
    """Samples and suspects of each client, those with the largest share first."""
    federated = result.federated
    counts = [(len(rows), int(result.suspects.flagged[rows].sum())) for _, rows in federated.client_views]
    order = sorted(range(len(counts)), key=lambda place: -counts[place][1] / max(counts[place][0], 1))
    table = Table(title="labels that look wrong", title_justify="left")
    for name in ("client", "samples", "suspects", "share"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for place in order[:_CLIENTS]:
        samples, flagged = counts[place]
        table.add_row(
            Text(federated.client_views[place][0]), str(samples), str(flagged), f"{flagged / max(samples, 1):.1%}"
        )
    if len(order) > _CLIENTS:
        table.add_row(f"and {len(order) - _CLIENTS} more")
    samples, flagged = (sum(column) for column in zip(*counts, strict=True))
    table.add_section()
    table.add_row("all", str(samples), str(flagged), f"{flagged / max(samples, 1):.1%}")
    return table


def describe(result: AuditResult, decided: Sequence[Decision]) -> list[str]:
    """How good the list is: by the truth where it is known, and by what people decided."""
    lines, figures = [], result.metrics()
    if figures.estimated.ratio > 0.5:
        lines.append("More than half of the labels look wrong: the model is probably too weak to judge them.")
    found = figures.audit
    if found is not None:
        lines.append(
            f"by the truth: precision {share(found.precision)}, recall {share(found.recall)}, "
            f"average precision {share(found.average_precision)}, right suggestions "
            f"{share(found.suggestion_accuracy)}"
        )
    if decided:
        counts = count(decided)
        lines.append(f"by people: {counts['wrong']} labels wrong, {counts['right']} right")
    return lines


def suspects_table(suspects: Sequence[SuspectRow]) -> Table:
    """The first suspects of all clients."""
    table = Table(title="most suspicious", title_justify="left")
    for name in ("client", "sample", "given", "suggested", "score"):
        table.add_column(name, justify="right" if name == "score" else "left")
    for each in suspects:
        cells = (each.client, each.sample, each.given, each.suggested)
        table.add_row(*map(Text, cells), f"{each.score:.3f}")
    return table


def count(decided: Sequence[Decision]) -> dict[str, int]:
    """How many labels people found wrong, and how many right."""
    wrong = sum(each.wrong for each in decided)
    return {"wrong": wrong, "right": len(decided) - wrong}
