"""The audit command: which labels look wrong, how sure that is, and labels to train with again."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import DataDir, Json, Workers, app, stderr, stdout
from rofl.errors import UserError

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
    from rofl.cli.resolve import decode_user_images
    from rofl.cli.suspects import audit_new, clients_table, count, describe, fresh_folder, suspects_table
    from rofl.training import label_audit
    from rofl.training.run_dir import RunDir

    if run is not None:
        decode_user_images(RunDir(run).read_experiment())
        place, result = run, label_audit.audit_run(run, workers=workers, data_dir=data_dir)
    else:
        assert model is not None
        assert data is not None
        place = out or fresh_folder(data)
        result = audit_new(model, data, place, workers, data_dir)
    decided = label_audit.merge_decisions(place, decisions or [], result.federated)
    if labels_out is not None:
        labels = label_audit.corrected_labels(result, decided, decided_only)
        label_audit.write_corrected_labels(labels_out, result.federated, labels, data_dir)
        changed = int((labels != result.federated.labels).sum())
        stderr.print(f"{changed} labels are changed in {labels_out}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        found = {**asdict(result.metrics()), "decisions": count(decided), "folder": str(place)}
        stdout.print_json(json.dumps(found))
        return
    stdout.print(clients_table(result))
    for line in describe(result, decided):
        stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    if show:
        stdout.print(suspects_table(RunDir(place).read_suspects()[:show]))
    stderr.print(f"Each client's own list: {place / 'suspects'}", markup=False, highlight=False, soft_wrap=True)
