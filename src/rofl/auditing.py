"""Audits apart from a run: judge its labels again, judge new data by its model, and turn the outcome into labels."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rofl import labels_file
from rofl.config import DataSpec, Experiment
from rofl.data import load as load_named
from rofl.data import own
from rofl.errors import UserError
from rofl.experiment import materials, network_for, simulate
from rofl.labels_file import Decision
from rofl.run_folder import Checkpoint, RunFolder
from rofl.scene import Scene, prepare
from rofl.verdict import Verdict, judge


def audit_run(path: Path, *, workers: int | None = None, data_dir: Path | None = None) -> Verdict:
    """Judge the labels of a finished run again by its final model, and write lists and figures anew."""
    folder = RunFolder(path)
    experiment, summary, last = _finished(folder)
    scene, network = materials(experiment, data_dir)
    with simulate(experiment, scene, network, last.glob, workers) as simulation:
        verdict = judge(scene, last.glob, *simulation.predict(last.glob, "train", len(scene.labels)))
    verdict.write(folder)
    folder.write_summary({**summary, **verdict.figures()})
    return verdict


def audit_data(
    model: Path,
    data: Path,
    out: Path,
    *,
    workers: int | None = None,
    data_dir: Path | None = None,
    progress: own.Progress | None = None,
) -> Verdict:
    """Judge the labels of new data, all of it, by the model of a finished run; the lists go to a new folder."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is in the way: it is not an empty folder.", "another --out")
    experiment, summary, last = _finished(RunFolder(model))
    if "classes" not in summary:
        raise UserError(f"{model} was audited by an older version.", f"rofl audit {model}, then this again")
    channels, side, _ = summary["shape"]
    if side == 1:
        raise UserError(f"The model of {model} is for a table, whose features depend on the samples it learnt from.")
    source = own.Source(str(data.absolute()), side=side, channels=channels)
    images = own.load_all(source, summary["classes"], progress)
    if not experiment.data.path:
        images = replace(images, transform=load_named(experiment.data.name, data_dir).transform)
    owners = images.owners if images.owners is not None else torch.zeros(len(images.train_labels), dtype=torch.long)
    spec = DataSpec(path=source.path, side=side, channels=channels, content=images.content)
    clients = images.clients or (spec.title,)
    about = {"data": spec, "clients": len(clients), "cohort": 1, "setting": "federated"}
    chosen = experiment.model_copy(update=about)
    parts = [(owners == client).nonzero().flatten() for client in range(len(clients))]
    scene = Scene(replace(images, owners=owners, clients=clients), images.train_labels, parts, chosen)
    with simulate(chosen, scene, network_for(chosen, images), last.glob, workers) as simulation:
        verdict = judge(scene, last.glob, *simulation.predict(last.glob, "train", len(scene.labels)))
    verdict.write(RunFolder(out))
    RunFolder(out).write_left_out(images.left_out)
    return verdict


def take_decisions(path: Path, files: Sequence[Path], scene: Scene) -> list[Decision]:
    """All decisions about a run's labels: those it keeps, and those of new files, which then are kept too."""
    kept = path / "decisions.csv"
    facts = (scene.images.samples, scene.images.classes, scene.labels)
    merged: dict[str, Decision] = {}
    for file in [*([kept] if kept.is_file() else []), *files]:
        merged |= {each.sample: each for each in labels_file.read_decisions(file, *facts)}  # the last word counts
    if files:
        labels_file.write_decisions(kept, merged.values())
    return list(merged.values())


def corrected(verdict: Verdict, decisions: Sequence[Decision], decided_only: bool = False) -> Tensor:
    """Labels (N,) as they should be: what people decided, and the suggestions for flagged labels nobody looked at."""
    scene, suspects = verdict.scene, verdict.suspects
    labels = scene.labels.clone() if decided_only else torch.where(suspects.flagged, suspects.suggested, scene.labels)
    places = {name: place for place, name in enumerate(scene.images.samples)}
    for each in decisions:
        labels[places[each.sample]] = scene.images.classes.index(each.label)
    return labels


def write_labels(path: Path, scene: Scene, labels: Tensor, data_dir: Path | None = None) -> None:
    """A CSV file of all clients' labels, which `rofl run --labels` takes."""
    names, classes = scene.images.samples, scene.images.classes
    given = _uncorrected(scene, data_dir)
    labels_file.write(
        path,
        (
            {"client": client, "sample": names[row], "given": classes[own], "label": classes[label]}
            for client, rows in scene.lists
            for row, own, label in zip(rows.tolist(), given[rows].tolist(), labels[rows].tolist(), strict=True)
        ),
    )


def _uncorrected(scene: Scene, data_dir: Path | None) -> Tensor:
    """The labels (N,) that the data itself has: a file of labels is held against these, also after an earlier one."""
    data = scene.experiment.data
    if not data.labels:
        return scene.labels
    before = scene.experiment.model_copy(update={"data": data.model_copy(update={"labels": ""})})
    return prepare(before, data_dir).labels


def _finished(folder: RunFolder) -> tuple[Experiment, dict[str, Any], Checkpoint]:
    experiment, summary, last = folder.read_experiment(), folder.read_summary(), folder.read_checkpoint()
    if last is None:
        raise UserError(f"{folder.path} has no checkpoint, so that its model is lost.", "run it again")
    return experiment, summary, last
