"""Audits after a run: audit its labels again, audit new data with its model, and write corrected labels."""

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
from rofl.training.local_engine import predict_held_out, start_simulation
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.run_files import LOCK_FILE, exclusive

_NEVER = 2.0  # above every probability: no suggestion is used


def audit_run(
    path: Path | str, *, data: object = None, workers: int | None = None, data_dir: Path | None = None
) -> AuditResult:
    """Audit the labels of a finished run again with its saved model, and rewrite its lists and metrics.

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
        noise = folder.audit.read_noise(len(federated.images.classes))
        with start_simulation(experiment, federated, network, saved, workers) as simulation:
            logits, features = simulation.predict(saved, "train", len(federated.labels))
            held_out = predict_held_out(simulation, federated, saved) if noise is None else None
        result = audit_labels(federated, saved.aux.get("centroids"), logits, features, noise, held_out)
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
    """Audit all labels of new data with the model of a finished run.

    Args:
        model: the directory of the finished run.
        data: a folder, manifest, .npz file or table, in the forms of docs/own-data.md.
        out: a new folder for the lists of suspects; the files of an interrupted audit in it are replaced.
        workers: processes; one per core by default, 0 for this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.
        progress: called with the number of decoded images and their total.

    Raises:
        UserError: the run is not finished, the data has classes that the model does not know, or `out` is in use.
    """
    _check_unused(out)  # before the data is decoded, which may take minutes
    return _judge(FinishedModel.read(model), data, RunDir(out), workers, data_dir, progress)


def _check_unused(out: Path) -> None:
    """Refuse a folder for an audit of new data unless it is missing, empty or of an interrupted audit.

    Raises:
        UserError: there is something else in it, such as a finished audit.
    """
    files = RunDir(out).audit
    if files.read_record() is not None:
        raise UserError(f"{out} already holds an audit.", f"rofl audit {out} repeats it, rofl report {out} its page")
    is_empty = not out.exists() or (out.is_dir() and {each.name for each in out.iterdir()} <= {LOCK_FILE})
    if not is_empty and not files.is_unfinished:
        raise UserError(f"{out} exists and is not an empty folder.", "another --out")


def _judge(
    model: FinishedModel,
    data: Path,
    folder: RunDir,
    workers: int | None,
    data_dir: Path | None,
    progress: user.Progress | None = None,
) -> AuditResult:
    """Audit new data with a model, and write lists, features and the record of the audit."""
    federated, chosen = model.load_data(data, data_dir, progress)
    saved, network = model.server_state, model.network(chosen, federated.images)
    with start_simulation(chosen, federated, network, saved, workers) as simulation:
        logits, features = simulation.predict(saved, "train", len(federated.labels))
    held_out = logits, federated.labels  # the model was trained with none of them
    result = audit_labels(federated, saved.aux.get("centroids"), logits, features, held_out=held_out)
    with exclusive(folder.path, "program"):
        if folder.audit.read_record() is None:
            _check_unused(folder.path)  # another audit may have started here while the data was judged
            folder.audit.begin()
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
    """Merge new decisions into those that the run folder keeps, and return all of them.

    Args:
        path: the run directory; its decisions.csv is rewritten if there are new files.
        files: CSV files saved by the report page, or exports of a labelling tool (`rofl.audit.label_tools`); the last
            decision about a sample counts.
        federated: the samples and labels that the decisions are about.
    """
    kept = path / "decisions.csv"
    facts = (federated.images.samples, federated.images.classes, federated.labels)
    merged: dict[str, Decision] = {}
    for file in [*([kept] if kept.is_file() else []), *files]:
        merged |= {each.sample: each for each in read_review(file, *facts)}  # the last decision counts
    if files:
        label_csv.write_decisions(kept, merged.values())
    return list(merged.values())


def export_audit(path: Path, result: AuditResult, tool: Tool, out: Path | None = None) -> Export:
    """Write the suspects of an audit into a folder for a labelling tool; `merge_decisions` reads its exports.

    Args:
        path: the directory with the lists of suspects.
        result: the audit.
        tool: the labelling tool.
        out: a new folder; by default one in `path`, named after the tool.

    Raises:
        UserError: the folder is in use, nothing is flagged, or the tool does not support such samples.
    """
    return export_suspects(tool, out or path / tool, RunDir(path).audit.read_suspects(), result.federated)


def corrected_labels(
    result: AuditResult,
    decisions: Sequence[Decision],
    decided_only: bool = False,
    min_confidence: float = MIN_CONFIDENCE,
) -> Correction:
    """Return corrected labels: the reviewers' decisions, and probable suggestions for samples without a decision.

    Args:
        result: the audit.
        decisions: the reviewers' decisions, which override suggestions.
        decided_only: keep all labels without a decision.
        min_confidence: the least probability of a suggestion that replaces a flagged label.
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
        data_dir: the folder of published data sets, for the labels before an earlier correction.
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
    """Return the labels (N,) of the data itself; label files are compared with these, even after a correction."""
    spec = federated.spec
    if not spec.data.labels:
        return federated.labels
    before = replace(spec, data=spec.data.model_copy(update={"labels": ""}))
    return load_federated(before, data_dir).labels


def _finished(folder: RunDir) -> tuple[Experiment, RunSummary, ServerState]:
    """Return the settings, summary and saved model of a finished run."""
    experiment, summary = folder.read_experiment(), folder.read_summary()
    return experiment, summary, folder.checkpoints.read_saved_model(summary)
