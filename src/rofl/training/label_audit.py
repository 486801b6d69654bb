"""Audits after a run: judge its labels again, judge new data by its model, and write corrected labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from rofl.audit.result import AuditResult, audit_labels
from rofl.config.schema import Experiment
from rofl.data import label_csv, user
from rofl.data import load_dataset as load_named
from rofl.data.federated import FederatedDataset, load_federated
from rofl.data.from_arrays import as_dataset
from rofl.data.label_csv import Decision
from rofl.data.specs import DataSpec
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.training.inputs import load_inputs, network_spec
from rofl.training.records import RunSummary
from rofl.training.run_dir import RunDir
from rofl.training.runner import start_simulation


def audit_run(
    path: Path | str, *, data: object = None, workers: int | None = None, data_dir: Path | None = None
) -> AuditResult:
    """Judge the labels of a finished run again by its final model, and write its lists and figures anew.

    Args:
        path: the run directory.
        data: the same samples again, if the run was started with `data=...`.
        workers: processes; one per core by default, 0 for this process.
        data_dir: the folder of published data sets; $ROFL_DATA by default.

    Raises:
        UserError: the run is not finished, or its data or model cannot be read.
    """
    folder = RunDir(Path(path))
    experiment, summary, saved = _finished(folder)
    federated, network = load_inputs(experiment, data_dir, None if data is None else as_dataset(data))
    with start_simulation(experiment, federated, network, saved, workers) as simulation:
        result = audit_labels(
            federated,
            saved.aux.get("centroids"),
            *simulation.predict(saved, "train", len(federated.labels)),
        )
    folder.write_audit(result)
    folder.write_encoder(federated.images.encoder)  # runs of 0.1 have none
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
        raise UserError(f"{out} is in the way: it is not an empty folder.", "another --out")
    experiment, summary, saved = _finished(RunDir(model))
    if not summary.classes:
        raise UserError(f"{model} was audited by an older version.", f"rofl audit {model}, then this again")
    channels, side, _ = summary.shape
    encoder = RunDir(model).read_encoder()
    if side == 1 and encoder is None:
        raise UserError(f"{model} was trained on a table and has no encoder.json.", f"rofl audit {model} writes it")
    if encoder is not None:
        channels = side = 0  # a table has none
    source = user.UserSource(str(data.absolute()), side=side, channels=channels)
    images = user.load_for_audit(source, summary.classes, encoder, progress)
    if not experiment.data.path:
        images = replace(images, transform=load_named(experiment.data.name, data_dir).transform)
    owners = images.owners if images.owners is not None else torch.zeros(len(images.train_labels), dtype=torch.long)
    spec = DataSpec(path=source.path, side=side, channels=channels, fingerprint=images.fingerprint)
    clients = images.clients or (spec.title,)
    about = {"data": spec, "clients": len(clients), "cohort": 1, "setting": "federated"}
    chosen = experiment.model_copy(update=about)
    parts = [(owners == client).nonzero().flatten() for client in range(len(clients))]
    federated = FederatedDataset(
        replace(images, owners=owners, clients=clients), images.train_labels, parts, chosen.split
    )
    with start_simulation(chosen, federated, network_spec(chosen, images), saved, workers) as simulation:
        result = audit_labels(
            federated,
            saved.aux.get("centroids"),
            *simulation.predict(saved, "train", len(federated.labels)),
        )
    RunDir(out).write_audit(result)
    RunDir(out).write_left_out(images.unreadable)
    return result


def next_audit_dir(data: Path) -> Path:
    """Return the next free `runs/audit-<data>-<number>`, for the lists of new data."""
    number, title = 1, DataSpec(path=str(data.absolute())).title
    while (path := Path("runs") / f"audit-{title}-{number}").exists():
        number += 1
    return path


def merge_decisions(path: Path, files: Sequence[Path], federated: FederatedDataset) -> list[Decision]:
    """Return all decisions about a run's labels: those it keeps, and those of new files, which it keeps from now on.

    Args:
        path: the run directory; its decisions.csv is written anew where there are new files.
        files: CSV files that the page saved; of two decisions about a sample the later one counts.
        federated: the samples and labels that the decisions are about.
    """
    kept = path / "decisions.csv"
    facts = (federated.images.samples, federated.images.classes, federated.labels)
    merged: dict[str, Decision] = {}
    for file in [*([kept] if kept.is_file() else []), *files]:
        merged |= {each.sample: each for each in label_csv.read_decisions(file, *facts)}  # the last word counts
    if files:
        label_csv.write_decisions(kept, merged.values())
    return list(merged.values())


def corrected_labels(result: AuditResult, decisions: Sequence[Decision], decided_only: bool = False) -> Tensor:
    """Return corrected labels (N,): people's decisions, and the suggestions for flagged labels nobody looked at.

    Args:
        result: the audit.
        decisions: of people; they count more than suggestions.
        decided_only: leave labels alone that nobody decided about.
    """
    federated, suspects = result.federated, result.suspects
    labels = (
        federated.labels.clone()
        if decided_only
        else torch.where(suspects.flagged, suspects.suggested, federated.labels)
    )
    places = {name: place for place, name in enumerate(federated.images.samples)}
    for each in decisions:
        labels[places[each.sample]] = federated.images.classes.index(each.label)
    return labels


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
    return folder.read_experiment(), summary, folder.read_model(summary)
