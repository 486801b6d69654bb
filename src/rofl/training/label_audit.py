"""Audits after a run: judge its labels again, judge new data by its model, and write corrected labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from rofl.audit.correction import MIN_CONFIDENCE, Correction, correct_labels
from rofl.audit.label_tools import Tool, read_review
from rofl.audit.label_tools.export_suspects import Export, export_suspects
from rofl.audit.result import AuditResult, audit_labels
from rofl.config.schema import Experiment
from rofl.data import label_csv, user
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.label_csv import Decision
from rofl.data.specs import DataSpec
from rofl.data.user.names import safe_names
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.training.audited_data import FinishedModel
from rofl.training.inputs import dataset_of, load_inputs
from rofl.training.local_engine import start_simulation
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.run_files import exclusive

_NEVER = 2.0  # a confidence that no suggestion has


def audit_run(
    path: Path | str, *, data: object = None, workers: int | None = None, data_dir: Path | None = None
) -> AuditResult:
    """Judge the labels of a finished run again by its final model, and rewrite its lists and figures.

    Args:
        path: the run directory, or the folder of an earlier audit of new data.
        data: the same samples again, if the run was started with `data=...`.
        workers: processes; one per core by default, 0 for this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.

    Raises:
        UserError: the run is not finished, or its data or model cannot be read.
    """
    folder = RunDir(Path(path))
    record = folder.audit.read_record()
    if record is not None:
        return _judge(FinishedModel.read(Path(record.model)), Path(record.data.path), folder, workers, data_dir)
    experiment, summary, saved = _finished(folder)
    federated, network = load_inputs(experiment, data_dir, None if data is None else dataset_of(data, experiment))
    with exclusive(folder.path, "program"):
        with start_simulation(experiment, federated, network, saved, workers) as simulation:
            result = audit_labels(
                federated,
                saved.aux.get("centroids"),
                *simulation.predict(saved, "train", len(federated.labels)),
                folder.audit.read_noise(len(federated.images.classes)),
            )
        folder.audit.write(result)
        folder.model.write_encoder(federated.images.encoder)  # runs of 0.1 have none
        folder.write_summary(summary.with_audit(result.metrics()))
        return result


def audit_data(
    model: Path,
    data: Path,
    out: Path,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    progress: user.Progress | None = None,
) -> AuditResult:
    """Judge the labels of new data, all of it, by the model of a finished run.

    Args:
        model: the directory of the finished run.
        data: a folder, manifest, .npz file or table, in the forms of docs/own-data.md.
        out: a new folder for the lists of suspects.
        workers: processes; one per core by default, 0 for this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        progress: called with the number of decoded images and their total.

    Raises:
        UserError: the run is not finished, the data has classes that the model does not know, or `out` is in use.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} exists and is not an empty folder.", "another --out")
    return _judge(FinishedModel.read(model), data, RunDir(out), workers, data_dir, progress)


def _judge(
    model: FinishedModel,
    data: Path,
    folder: RunDir,
    workers: int | None,
    data_dir: Path | None,
    progress: user.Progress | None = None,
) -> AuditResult:
    """Judge new data by a model, and write lists, features and the record of the audit."""
    federated, chosen = model.load_data(data, data_dir, progress)
    saved, network = model.server_state, model.network(chosen, federated.images)
    with start_simulation(chosen, federated, network, saved, workers) as simulation:
        result = audit_labels(
            federated,
            saved.aux.get("centroids"),
            *simulation.predict(saved, "train", len(federated.labels)),
        )
    folder.audit.write(result)
    folder.write_left_out(federated.images.unreadable)
    folder.model.write_encoder(model.encoder)
    folder.audit.write_record(model.record(federated.spec.data, result.metrics().estimated))
    return result


def next_audit_dir(data: Path) -> Path:
    """Return the next free `runs/audit-<data>-<number>`, for the lists of new data."""
    number, title = 1, safe_names([DataSpec(path=str(data.absolute())).title])[0]
    while (path := Path("runs") / f"audit-{title}-{number}").exists():
        number += 1
    return path


def merge_decisions(path: Path, files: Sequence[Path], federated: FederatedDataset) -> list[Decision]:
    """Return all decisions about a run's labels: those it keeps, and those of new files, which it keeps from now on.

    Args:
        path: the run directory; its decisions.csv is rewritten if there are new files.
        files: CSV files that the page saved, or what a labelling tool exported (`rofl.audit.label_tools`); of two
            decisions about a sample the later one counts.
        federated: the samples and labels that the decisions are about.
    """
    kept = path / "decisions.csv"
    facts = (federated.images.samples, federated.images.classes, federated.labels)
    merged: dict[str, Decision] = {}
    for file in [*([kept] if kept.is_file() else []), *files]:
        merged |= {each.sample: each for each in read_review(file, *facts)}  # the last word counts
    if files:
        label_csv.write_decisions(kept, merged.values())
    return list(merged.values())


def export_audit(path: Path, result: AuditResult, tool: Tool, out: Path | None = None) -> Export:
    """Write the suspects of an audit into a folder for a labelling tool; `merge_decisions` takes what comes back.

    Args:
        path: the directory with the lists of suspects.
        result: the audit.
        tool: that is to read them.
        out: the folder, to be created; one in `path` that is named after the tool by default.

    Raises:
        UserError: the folder is in use, nothing is flagged, or the tool does not show such samples.
    """
    return export_suspects(tool, out or path / tool, RunDir(path).audit.read_suspects(), result.federated)


def corrected_labels(
    result: AuditResult,
    decisions: Sequence[Decision],
    decided_only: bool = False,
    min_confidence: float = MIN_CONFIDENCE,
) -> Correction:
    """Return corrected labels: people's decisions, and suggestions that are probable enough if nobody looked.

    Args:
        result: the audit.
        decisions: of people; they count more than suggestions.
        decided_only: leave labels alone that nobody decided about.
        min_confidence: from which probability on a suggestion takes the place of a label that looks wrong.
    """
    images = result.federated.images
    places = {name: place for place, name in enumerate(images.samples)}
    decided = {places[each.sample]: images.classes.index(each.label) for each in decisions}
    least = _NEVER if decided_only else min_confidence
    return correct_labels(result.federated.labels, result.suspects, decided, least)


def write_corrected_labels(
    path: Path, federated: FederatedDataset, labels: Tensor, data_dir: Path | None = None
) -> None:
    """Write a CSV file of all clients' labels, which `rofl run --labels` reads.

    Args:
        path: a new file.
        federated: the samples.
        labels: (N,) the corrected labels.
        data_dir: the folder of published data sets, to read the labels that an earlier correction replaced.
    """
    names, classes = federated.images.samples, federated.images.classes
    given = _uncorrected(federated, data_dir)
    label_csv.write_labels(
        path,
        (
            {"client": client, "sample": names[row], "given": classes[own], "label": classes[label]}
            for client, rows in federated.client_views
            for row, own, label in zip(rows.tolist(), given[rows].tolist(), labels[rows].tolist(), strict=True)
        ),
    )


def _uncorrected(federated: FederatedDataset, data_dir: Path | None) -> Tensor:
    """The labels (N,) that the data itself has: a file of labels is held against these, also after an earlier one."""
    spec = federated.spec
    if not spec.data.labels:
        return federated.labels
    before = replace(spec, data=spec.data.model_copy(update={"labels": ""}))
    return load_federated(before, data_dir).labels


def _finished(folder: RunDir) -> tuple[Experiment, RunSummary, ServerState]:
    """Return settings, outcome and saved model of a finished run."""
    summary = folder.read_summary()
    return folder.read_experiment(), summary, folder.checkpoints.read_saved_model(summary)
