"""The audit command: which labels look wrong, how sure that is, and labels to train with again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from rofl.cli.app import DataDir, Json, Workers, app, result, talk
from rofl.cli.choose import decode_own
from rofl.cli.tables import share
from rofl.config import DataSpec
from rofl.errors import UserError
from rofl.labels_file import Decision
from rofl.run_folder import RunFolder
from rofl.verdict import Verdict

_CLIENTS = 20  # that are listed; --json has all

Run = Annotated[Path | None, typer.Argument(metavar="[RUN]", help="the folder of a finished run")]
Model = Annotated[Path | None, typer.Option("--model", metavar="RUN", help="judge --data by this run's model")]
New = Annotated[Path | None, typer.Option("--data", metavar="PATH", help="new data; docs/own-data.md has the forms")]
Decisions = Annotated[
    list[Path] | None, typer.Option("--decisions", metavar="CSV", help="saved from the page; may be given again")
]
LabelsOut = Annotated[
    Path | None, typer.Option("--labels-out", metavar="CSV", help="write corrected labels, for rofl run --labels")
]
DecidedOnly = Annotated[bool, typer.Option("--decided-only", help="correct only what people decided")]
Show = Annotated[int, typer.Option("--show", min=0, help="list so many suspects")]
Out = Annotated[Path | None, typer.Option("--out", help="the lists of new data; a new folder in runs/ where absent")]


@app.command("audit", epilog="Example: rofl audit runs/digits-rofl-1 --labels-out corrected.csv")
def audit_command(
    run: Run = None,
    model: Model = None,
    data: New = None,
    out: Out = None,
    decisions: Decisions = None,
    labels_out: LabelsOut = None,
    decided_only: DecidedOnly = False,
    show: Show = 10,
    workers: Workers = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Judge a run's labels again, or those of new data: lists of suspects, and labels to train with again."""
    from rofl import auditing

    if (run is None) == (model is None) or (model is None) != (data is None):
        raise UserError(
            "An audit is of a run, or of new data by a run's model.", "rofl audit RUN, or --model RUN --data PATH"
        )
    if out is not None and run is not None:
        raise UserError("--out is for the lists of new data; those of a run stay in its folder.", "leave it out")
    if labels_out is None:
        if decided_only:
            raise UserError("--decided-only says what --labels-out is to write.", "--labels-out corrected.csv")
    elif labels_out.suffix.casefold() != ".csv":
        raise UserError(f"Corrected labels are a CSV file, which {labels_out} does not look like.", "corrected.csv")
    elif labels_out.exists():
        raise UserError(f"{labels_out} is there already.", "another --labels-out")
    if run is not None:
        decode_own(RunFolder(run).read_experiment())
        place, verdict = run, auditing.audit_run(run, workers=workers, data_dir=data_dir)
    else:
        assert model is not None
        assert data is not None
        place = out or _fresh(data)
        verdict = _new(model, data, place, workers, data_dir)
    decided = auditing.take_decisions(place, decisions or [], verdict.scene)
    if labels_out is not None:
        labels = auditing.corrected(verdict, decided, decided_only)
        auditing.write_labels(labels_out, verdict.scene, labels, data_dir)
        changed = int((labels != verdict.scene.labels).sum())
        talk.print(f"{changed} labels are changed in {labels_out}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        found = {**verdict.figures(), "decisions": _decided(decided), "folder": str(place)}
        result.print_json(json.dumps(found))
        return
    result.print(clients_table(verdict))
    for line in describe(verdict, decided):
        result.print(line, markup=False, highlight=False, soft_wrap=True)
    if show:
        result.print(suspects_table(RunFolder(place).read_suspects()[:show]))
    talk.print(f"Each client's own list: {place / 'suspects'}", markup=False, highlight=False, soft_wrap=True)


def _new(model: Path, data: Path, out: Path, workers: int | None, data_dir: Path | None) -> Verdict:
    from rofl import auditing
    from rofl.cli.own_data import decoding

    with decoding(talk) as progress:
        return auditing.audit_data(model, data, out, workers=workers, data_dir=data_dir, progress=progress)


def clients_table(verdict: Verdict) -> Table:
    """Samples and suspects of each client, those with the largest share first."""
    scene = verdict.scene
    counts = [(len(rows), int(verdict.suspects.flagged[rows].sum())) for rows in scene.parts]
    order = sorted(range(len(counts)), key=lambda place: -counts[place][1] / max(counts[place][0], 1))
    table = Table(title="labels that look wrong", title_justify="left")
    for name in ("client", "samples", "suspects", "share"):
        table.add_column(name, justify="left" if name == "client" else "right")
    for place in order[:_CLIENTS]:
        samples, flagged = counts[place]
        table.add_row(Text(scene.client_names[place]), str(samples), str(flagged), f"{flagged / max(samples, 1):.1%}")
    if len(order) > _CLIENTS:
        table.add_row(f"and {len(order) - _CLIENTS} more")
    samples, flagged = (sum(column) for column in zip(*counts, strict=True))
    table.add_section()
    table.add_row("all", str(samples), str(flagged), f"{flagged / max(samples, 1):.1%}")
    return table


def describe(verdict: Verdict, decided: Sequence[Decision]) -> list[str]:
    """How good the list is: by the truth where it is known, and by what people decided."""
    lines, figures = [], verdict.figures()
    if figures["estimated"]["ratio"] > 0.5:
        lines.append("More than half of the labels look wrong: the model is probably too weak to judge them.")
    found: Mapping[str, Any] | None = figures["audit"]
    if found is not None:
        lines.append(
            f"by the truth: precision {share(found['precision'])}, recall {share(found['recall'])}, "
            f"average precision {share(found['average_precision'])}, right suggestions "
            f"{share(found['right_suggestions'])}"
        )
    if decided:
        counts = _decided(decided)
        lines.append(f"by people: {counts['wrong']} labels wrong, {counts['right']} right")
    return lines


def suspects_table(suspects: Sequence[Mapping[str, Any]]) -> Table:
    """The first suspects of all clients."""
    table = Table(title="most suspicious", title_justify="left")
    for name in ("client", "sample", "given", "suggested", "score"):
        table.add_column(name, justify="right" if name == "score" else "left")
    for each in suspects:
        cells = (str(each[name]) for name in ("client", "sample", "given", "suggested"))
        table.add_row(*map(Text, cells), f"{float(each['score']):.3f}")
    return table


def _decided(decided: Sequence[Decision]) -> dict[str, int]:
    wrong = sum(each.wrong for each in decided)
    return {"wrong": wrong, "right": len(decided) - wrong}


def _fresh(data: Path) -> Path:
    """The next free folder for an audit of new data."""
    number, title = 1, DataSpec(path=str(data.absolute())).title
    while (path := Path("runs") / f"audit-{title}-{number}").exists():
        number += 1
    return path
