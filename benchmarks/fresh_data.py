"""How rofl does on data sets that no setting was chosen on, from the file of a user to the corrected labels.

    ROFL_DATA=... python -m benchmarks.fresh_data --packages FOLDER     # runs what is missing
    python -m benchmarks.fresh_data --write                             # the table in docs/stand-ins.md

`benchmarks/fresh_data_sets.py` says what to install into FOLDER; a set whose data is not there is skipped with a
sentence. Each case goes the way of a new user: labels are made wrong in a file, `rofl.from_data(file, effort="quick")`
chooses the settings, and the run holds out a part of the file by itself. A quarter of the samples (at most 1,000) is
not in the file; the accuracy of the saved model on it, by its true labels, is the accuracy here. Figures are kept in
benchmarks/records/fresh-data.json.
"""

import argparse
import json
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import torch

import rofl
from benchmarks.fresh_data_sets import SETS, FreshSet, MissingData, Sources
from benchmarks.held_out_audit import corrupt
from benchmarks.page_table import write_table
from rofl.audit import average_precision
from rofl.audit.correction import correct_labels
from rofl.audit.result import AuditResult
from rofl.audit.suspects import calibration_error, detection
from rofl.data.atomic import atomic_write
from rofl.methods.noise_model import NoiseModel
from rofl.training.audited_data import FinishedModel

RECORDS = Path("benchmarks/records/fresh-data.json")
PAGE = Path("docs/stand-ins.md")
_BEGIN, _END = "<!-- begin: python -m benchmarks.fresh_data --write -->", "<!-- end of fresh_data -->"
_FIVE = (0.0, 0.1, 0.2, 0.35, 0.46)  # wrong labels at five clients
NOISES: dict[str, tuple[float | tuple[float, ...], str]] = {
    "symmetric 0.3": (0.3, "symmetric"),
    "clean": (0.0, "symmetric"),
    "pair 0.3": (0.3, "pair"),
    "0 to 0.46": (_FIVE, "symmetric"),
}
METHODS = ("plain", "rofl-plus")
_IMAGE_NOISES = ("symmetric 0.3", "clean", "0 to 0.46")  # a run on images takes a minute or two
_WIDTH = 0.25  # of the network for images
_MANY = 1500  # samples from which on there are ten clients, else five


@dataclass(frozen=True)
class Figures:
    """What one run gives. Figures of the list are None where they have no meaning: no label is wrong, say.

    Attributes:
        accuracy: of the saved model on samples outside the file, with their true labels, in per cent.
        chance: the accuracy of the class that is most frequent there.
        average_precision: of the list of suspects.
        f1: of the flagged labels.
        ece: expected calibration error of the scores.
        flagged: the share of flagged labels.
        noise: the true share of wrong labels among those judged.
        estimated: the mean score.
        clients: for each client its true share of wrong labels, the mean score, the flagged share and both bounds.
        wrong_before: the number of wrong labels in the list.
        wrong_after: the same after corrections with `--labels-out`.
        expected_after: what the audit says about it.
        warnings: the guard's signs.
        rounds: how many were run.
        selected: the round whose model was saved.
        belief: numbers of the noise model of `rofl-plus` in that round.
        held_out: per round: agreement with held-out labels, and the fitted rate of wrong labels.
    """

    accuracy: float
    chance: float
    average_precision: float | None
    f1: float | None
    ece: float
    flagged: float
    noise: float
    estimated: float
    clients: list[list[float]]
    wrong_before: int
    wrong_after: int
    expected_after: float
    warnings: list[str]
    rounds: int
    selected: int | None
    belief: list[float]
    held_out: list[list[float | None]]


def measure(
    name: str, data: FreshSet, noise: str, method: str, seed: int, folder: Path, keep: Path | None = None
) -> Figures:
    """Run one case in `folder`, which must not exist yet, and remove it.

    Args:
        name: of the data set.
        data: its samples.
        noise: a key of `NOISES`.
        method: of `rofl run`.
        seed: of the split, of the wrong labels and of the run.
        folder: for the file and the run.
        keep: a file for the model's probabilities of all rows of the file; None to keep none.
    """
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    count, classes = len(data.labels), int(data.labels.max()) + 1
    order = rng.permutation(count)
    outside, inside = order[: min(count // 4, 1000)], np.sort(order[min(count // 4, 1000) :])
    rates, kind = NOISES[noise]
    sites = 5 if isinstance(rates, tuple) or len(inside) < _MANY else 10
    owners = rng.permutation(len(inside)) % sites
    truth = data.labels[inside]
    labels = corrupt(truth, classes, np.broadcast_to(np.asarray(rates), (sites,))[owners], kind, rng)
    folder.mkdir(parents=True)
    try:
        file = _write_file(data, inside, labels, owners, folder)
        width = {} if isinstance(data.samples, pd.DataFrame) else {"model__width": _WIDTH}
        experiment = rofl.from_data(file, method=method, effort="quick", seed=seed, **width)
        run = rofl.run(experiment, folder / "run", workers=0)
        outer = data.samples.iloc[outside] if isinstance(data.samples, pd.DataFrame) else data.samples[outside]
        predicted = rofl.load(run.folder).predict(outer)
        right = np.asarray([str(each) for each in predicted]) == _names(data.labels[outside])
        if keep is not None:
            inner = data.samples.iloc[inside] if isinstance(data.samples, pd.DataFrame) else data.samples[inside]
            trained = np.zeros(len(inside), bool)
            trained[_rows(rofl.audit_run(run.folder, workers=0))] = True
            found = {"truth": truth, "labels": labels, "owners": owners, "trained": trained}
            keep.parent.mkdir(parents=True, exist_ok=True)
            np.savez(keep, probabilities=rofl.load(run.folder).predict_proba(inner), **found)
        return _judge(run, truth, data.labels[outside], right)
    finally:
        shutil.rmtree(folder)


def _write_file(data: FreshSet, rows: np.ndarray, labels: np.ndarray, owners: np.ndarray, folder: Path) -> Path:
    """Write the user's file: a CSV with `id`, `label` and `client`, or an .npz.

    Args:
        data: the data set.
        rows: the samples in the file.
        labels: their given labels.
        owners: their clients.
        folder: for the file.
    """
    if not isinstance(data.samples, pd.DataFrame):
        named = {"labels": _names(labels), "clients": np.array([f"site {owner}" for owner in owners])}
        np.savez(folder / "data.npz", images=data.samples[rows], **named)
        return folder / "data.npz"
    frame = data.samples.iloc[rows].assign(
        label=_names(labels),
        client=[f"site {owner}" for owner in owners],
        id=[str(place) for place in range(len(rows))],
    )
    frame.to_csv(folder / "data.csv", index=False)
    return folder / "data.csv"


def _names(labels: np.ndarray) -> np.ndarray:
    return np.array([f"class {label:02d}" for label in labels])


def _rows(audit: AuditResult) -> list[int]:
    """Return which rows of the file were trained with and judged, in the order of the audit."""
    return [int(sample) for sample in audit.federated.images.samples]


def _judge(run: "rofl.Run", truth: np.ndarray, outer: np.ndarray, right: np.ndarray) -> Figures:
    """Return the figures of a run.

    Args:
        run: the finished run.
        truth: the true labels of the file's rows.
        outer: the true labels outside the file.
        right: which of these the model predicts.
    """
    audit = rofl.audit_run(run.folder, workers=0)
    federated, judged = audit.federated, audit.suspects
    names = {f"class {place:02d}": place for place in range(int(max(truth.max(), outer.max())) + 1)}
    of_class = torch.tensor([names[name] for name in federated.images.classes])
    true = torch.from_numpy(truth[_rows(audit)])
    wrong = of_class[federated.labels] != true
    correction = correct_labels(federated.labels, judged)
    bounds = audit.metrics().estimated.intervals
    clients = [
        [
            *(float(values[part].double().mean()) for values in (wrong, judged.score, judged.flagged)),
            *bounds[client],
        ]
        for client, part in sorted(federated.client_views)
    ]
    some = bool(wrong.any())
    aux = FinishedModel.read(run.folder).server_state.aux
    return Figures(
        accuracy=100 * float(right.mean()),
        chance=100 * float(np.bincount(outer).max() / len(outer)),
        average_precision=average_precision(judged.score, wrong) if some else None,
        f1=detection(judged.flagged, wrong).f1 if some else None,
        ece=calibration_error(judged.score, wrong) or 0.0,
        flagged=float(judged.flagged.double().mean()),
        noise=float(wrong.double().mean()),
        estimated=float(judged.score.mean()),
        clients=[[round(value, 4) for value in client] for client in clients],
        wrong_before=int(wrong.sum()),
        wrong_after=int((of_class[correction.labels] != true).sum()),
        expected_after=correction.wrong_after,
        warnings=[event.sign for event in run.summary.warnings],
        rounds=len(run.history),
        selected=run.summary.selected_round,
        belief=[round(value, 4) for value in NoiseModel.read(aux).numbers.tolist()] if "noise/numbers" in aux else [],
        held_out=[[record.held_out.agreement, record.held_out.noise_rate] for record in run.history if record.held_out],
    )


def main() -> None:
    """Run the cases that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}, and run nothing")
    parser.add_argument("--packages", type=Path, default=Path(), help="the folder into which packages were installed")
    parser.add_argument("--records", type=Path, default=RECORDS, help="where figures are kept")
    parser.add_argument("--sets", default=",".join(SETS), help="names of data sets, separated by commas")
    parser.add_argument("--noises", default=",".join(NOISES), help="kinds of noise, separated by commas")
    parser.add_argument("--methods", default=",".join(METHODS), help="methods, separated by commas")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a folder for the models' probabilities")
    parser.add_argument("--work", type=Path, default=Path("runs/fresh-data"), help="a folder for files and runs")
    options = parser.parse_args()
    records: dict[str, dict[str, object]] = json.loads(options.records.read_text()) if options.records.exists() else {}
    if not options.write:
        torch.set_num_threads(1)
        published = os.environ.get("ROFL_DATA")
        sources = Sources(options.packages.absolute(), Path(published) if published else None)
        for seed in range(options.seeds):
            for name in options.sets.split(","):
                _measure_set(name, sources, seed, options, records)
    if options.write:
        write_table(PAGE, _BEGIN, _END, table(records))
    print(table(records))


def _measure_set(
    name: str, sources: Sources, seed: int, options: argparse.Namespace, records: dict[str, dict[str, object]]
) -> None:
    """Run the missing cases of one data set and keep their figures.

    Args:
        name: of the set.
        sources: where data files are.
        seed: of everything random.
        options: of the command line.
        records: the figures so far; they are added to.
    """
    data = None
    for noise in options.noises.split(","):
        for method in options.methods.split(","):
            key = f"{name}, {noise}, {method}, seed {seed}"
            if key in records:
                continue
            try:
                data = data or SETS[name][1](sources)
            except MissingData as missing:
                print(f"{name} is skipped: {missing}.", flush=True)
                return
            if isinstance(data.samples, np.ndarray) and noise not in _IMAGE_NOISES:
                continue
            title = key.replace(",", "").replace(" ", "-")
            keep = options.keep and options.keep / f"{title}.npz"
            found = measure(name, data, noise, method, seed, options.work / title, keep)
            records[key] = asdict(found)
            atomic_write(options.records, json.dumps(records) + "\n")
            print(f"{key}: {found.accuracy:.1f} %, AP {found.average_precision}, ECE {found.ece:.3f}", flush=True)


def table(records: Mapping[str, Mapping[str, object]]) -> str:
    """Return the finished cases as a Markdown table; figures are means over seeds, plain's before rofl-plus's."""
    heads = ["data (half)", "noise", "seeds", "accuracy: plain, rofl-plus", "AP", "F1", "ECE", "noise: true, estimated"]
    heads += ["clients within bounds", "wrong labels: before, after", "warnings of rofl-plus"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for name, (half, _) in SETS.items():
        for noise in NOISES:
            found = [_seeds(records, f"{name}, {noise}, {method}") for method in METHODS]
            seeds = sorted(set.intersection(*(set(each) for each in found)))
            if seeds:
                plain, plus = ([each[seed] for seed in seeds] for each in found)
                lines.append(_line(f"{name} ({half.split()[0]})", noise, plain, plus))
    return "\n".join(lines)


def _seeds(records: Mapping[str, Mapping[str, object]], case: str) -> dict[str, Figures]:
    """Return the figures of a case by its seed."""
    start = f"{case}, seed "
    found = {key.removeprefix(start): facts for key, facts in records.items() if key.startswith(start)}
    return {seed: Figures(**json.loads(json.dumps(facts))) for seed, facts in found.items()}


def _line(name: str, noise: str, plain: Sequence[Figures], plus: Sequence[Figures]) -> str:
    """Return one line of the table.

    Args:
        name: of the set and its half.
        noise: of the case.
        plain: the figures of plain, one per seed.
        plus: those of rofl-plus.
    """
    both = plain, plus
    within = [client[3] <= client[0] <= client[4] for each in plus for client in each.clients]
    before, after = (sum(getattr(each, key) for each in plus) for key in ("wrong_before", "wrong_after"))
    cells = [
        name,
        noise,
        str(len(plus)),
        ", ".join(f"{fmean(each.accuracy for each in runs):.1f}" for runs in both),
        _pair(both, lambda each: each.average_precision),
        _pair(both, lambda each: each.f1),
        _pair(both, lambda each: each.ece),
        f"{fmean(each.noise for each in plus):.3f}, {fmean(each.estimated for each in plus):.3f}",
        f"{sum(within)} of {len(within)}",
        f"{before}, {after}",
        ", ".join(sorted({sign for each in plus for sign in each.warnings})) or "-",
    ]
    return "| " + " | ".join(cells) + " |"


def _pair(both: Sequence[Sequence[Figures]], read: Callable[[Figures], float | None]) -> str:
    means = [[value for each in runs if (value := read(each)) is not None] for runs in both]
    return ", ".join(f"{fmean(values):.3f}" if values else "-" for values in means)


if __name__ == "__main__":
    main()
