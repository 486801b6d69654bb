"""`rofl audit`: lists labels that look wrong, with their probabilities, and writes corrected labels."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from rofl.cli.app import app, print_json, print_message, print_warning, stdout
from rofl.cli.options import DataDir, Json, Workers
from rofl.errors import UserError

RunFolder = Annotated[
    Path | None, typer.Argument(metavar="[RUN]", help="the folder of a finished run, or of an earlier audit")
]
ModelRun = Annotated[Path | None, typer.Option("--model", metavar="RUN", help="audit --data with this run's model")]
NewData = Annotated[
    Path | None,
    typer.Option("--data", metavar="PATH", help="new data: a folder of images, or a CSV, Parquet or .npz file"),
]
Decisions = Annotated[
    list[Path] | None,
    typer.Option("--decisions", metavar="PATH", help="saved from the page or exported by a tool; repeatable"),
]
ToolName = Literal["label-studio", "cvat", "fiftyone", "datalab"]  # as rofl.audit.label_tools.Tool, which imports torch
ExportTo = Annotated[
    ToolName | None, typer.Option("--export", metavar="TOOL", help="label-studio, cvat, fiftyone or datalab")
]
LabelsOut = Annotated[
    Path | None, typer.Option("--labels-out", metavar="CSV", help="write corrected labels, for rofl run --labels")
]
DecidedOnly = Annotated[bool, typer.Option("--decided-only", help="apply only the reviewers' decisions")]
MinConfidence = Annotated[
    float,
    typer.Option("--min-confidence", min=0, max=1, help="the least probability of a suggestion that --labels-out uses"),
]
Show = Annotated[int, typer.Option("--show", min=0, help="number of suspects to list")]
AuditOut = Annotated[
    Path | None, typer.Option("--out", help="folder of --export, or of new data's lists; a new one if omitted")
]


@app.command("audit", epilog="Example: rofl audit runs/digits-rofl-1 --labels-out corrected.csv")
def audit_command(
    run: RunFolder = None,
    model: ModelRun = None,
    data: NewData = None,
    out: AuditOut = None,
    decisions: Decisions = None,
    export: ExportTo = None,
    labels_out: LabelsOut = None,
    decided_only: DecidedOnly = False,
    min_confidence: MinConfidence = 0.9,
    show: Show = 10,
    workers: Workers = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Audit a run's labels again, or those of new data: lists of suspects, and labels to train with again.

    --export writes the suspects for Label Studio, CVAT, FiftyOne or cleanlab's Datalab; --decisions reads the decisions
    that were exported there.
    """
    _check_options(run, model, data, out if export is None else None)
    _check_labels_out(labels_out, decided_only)
    if export is not None:
        _check_export(run, model, export, out)
    _check_decisions(decisions or [])
    from rofl.cli.audit_tables import (
        audit_lines,
        clients_table,
        correction_lines,
        count_decisions,
        export_lines,
        nothing_suspicious,
        suspects_table,
    )
    from rofl.cli.progress import decoding_bar
    from rofl.cli.resolve import decode_user_images
    from rofl.report import write_report
    from rofl.training import label_audit
    from rofl.training.run_dir import RunDir

    if run is not None:
        if RunDir(run).audit.read_record() is None:
            decode_user_images(RunDir(run).read_experiment())
        folder, result = run, label_audit.audit_run(run, workers=workers, data_dir=data_dir)
    else:
        assert model is not None
        assert data is not None
        folder = out or label_audit.next_audit_dir(data)
        with decoding_bar() as progress:
            result = label_audit.audit_data(model, data, folder, workers=workers, data_dir=data_dir, progress=progress)
        write_report([folder])
    decided = label_audit.merge_decisions(folder, decisions or [], result.federated)
    if export is not None:
        written = label_audit.export_audit(folder, result, export, out if run is not None else None)
        for line in export_lines(export, written):
            print_message(line)
    if labels_out is not None:
        correction = label_audit.corrected_labels(result, decided, decided_only, min_confidence)
        label_audit.write_corrected_labels(labels_out, result.federated, correction.labels, data_dir)
        for line in correction_lines(correction, labels_out, min_confidence, decided_only):
            print_message(line)
    if as_json:
        print_json({**asdict(result.metrics()), "decisions": count_decisions(decided), "folder": str(folder)})
        return
    stdout.print(clients_table(result))
    for line in audit_lines(result, decided):
        stdout.print(line, markup=False, highlight=False, soft_wrap=True)
    rows = RunDir(folder).audit.read_suspects()
    flagged = [row for row in rows if row.flagged]
    if not flagged:
        stdout.print(nothing_suspicious(len(rows)), markup=False, highlight=False, soft_wrap=True)
    elif show:
        stdout.print(suspects_table(flagged[:show]))
    record = RunDir(folder).audit.read_record()
    if record is not None and record.warning:
        print_warning(record.warning)
    print_message(f"Each client's own list: {folder / 'suspects'}")
    if model is not None:
        print_message(f"The page: {folder / 'report.html'}")


def _check_options(run: Path | None, model: Path | None, data: Path | None, out: Path | None) -> None:
    """Refuse options that name neither a run nor new data, or both."""
    if (run is None) == (model is None) or (model is None) != (data is None):
        raise UserError(
            "An audit is of a run, or of new data by a run's model.", "rofl audit RUN, or --model RUN --data PATH"
        )
    if out is not None and run is not None:
        raise UserError("--out is for the lists of new data; those of a run stay in its folder.", "leave it out")


def _check_export(run: Path | None, model: Path | None, tool: ToolName, out: Path | None) -> None:
    """Refuse an export that cannot be written, before the audit takes its time.

    Args:
        run: the run, or the folder of an earlier audit.
        model: the run whose model audits new data.
        tool: that is to read the export.
        out: `--out`: of new data it is the folder of lists, in which the export will be.
    """
    from rofl.audit.label_tools.export_suspects import check_export
    from rofl.training.run_dir import RunDir

    audited = RunDir(run).audit.read_record() if run is not None else None
    trained = Path(audited.model) if audited is not None else model or run
    record = RunDir(trained).model.read_record() if trained is not None else None
    are_images = record is None or record.preprocessing.kind == "image"  # a run of 0.1 has no record
    lists = run or out
    folder = out if run is not None and out is not None else lists and lists / tool
    check_export(tool, folder, are_images)


def _check_decisions(paths: Sequence[Path]) -> None:
    """Refuse files of decisions that do not exist, before the audit starts, which is slow."""
    if paths:
        from rofl.audit.label_tools.reviews import find_review

        for path in paths:
            find_review(path)


def _check_labels_out(labels_out: Path | None, decided_only: bool) -> None:
    """Refuse a file of corrected labels that cannot be written, before the audit starts, which is slow."""
    if labels_out is None:
        if decided_only:
            raise UserError("--decided-only needs --labels-out.", "--labels-out corrected.csv")
    elif labels_out.suffix.casefold() != ".csv":
        raise UserError(
            f"Corrected labels are written as CSV, and {labels_out} does not end with .csv.", "corrected.csv"
        )
    elif labels_out.exists():
        raise UserError(f"{labels_out} already exists.", "another --labels-out")
