"""How good the lists of suspects are on a user's own data, with and without the noise rate of held-out labels.

    ROFL_DATA=... python -m benchmarks.held_out_audit          # runs what is missing: about half an hour on two cores
    python -m benchmarks.held_out_audit --write                # the table in docs/decisions/0019-held-out-noise.md

Each case goes the way of a user: arrays with owners, labels of which some are wrong, also in the held-out part, and
`rofl.from_data(..., effort="quick")`. Figures are kept in benchmarks/records/held-out-audit.json.
"""

import argparse
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rofl
from benchmarks import stand_in_data
from benchmarks.page_table import write_table
from benchmarks.record_file import add_record, read_records
from rofl.audit import average_precision, find_suspects
from rofl.audit.held_out_noise import estimate_noise, judge_clients
from rofl.audit.noise_estimation import noise_interval
from rofl.audit.suspects import JudgedLabels, calibration_error, detection

RECORDS = Path("benchmarks/records/held-out-audit.json")
PAGE = Path("docs/decisions/0019-held-out-noise.md")
_BEGIN, _END = "<!-- begin: python -m benchmarks.held_out_audit --write -->", "<!-- end -->"
_FIVE = (0.0, 0.1, 0.2, 0.35, 0.46)  # wrong labels at five clients
_GRAINY = (0.0, 0.05, 0.1, 0.2, 0.45)
Rates = float | tuple[float, ...]


@dataclass(frozen=True)
class Case:
    """A data set of `stand_in_data`, its wrong labels, its clients and the settings that are not the default."""

    name: str
    data: str
    rates: Rates
    clients: int = 10
    kind: str = "symmetric"
    method: str = "rofl-plus"
    width: float | None = None
    rarity: float = 1.0  # class k keeps this share of its samples to the power of k, but for those with true labels

    @property
    def folder(self) -> Path:
        """Where its run is."""
        return Path("runs/held-out-audit") / self.name.replace(",", "").replace(" ", "-")


CASES = (
    Case("wine, 0.3", "wine", 0.3, 5),
    Case("breast cancer, 0.1", "breast_cancer", 0.1, 5),
    Case("breast cancer, 0.3", "breast_cancer", 0.3, 5),
    Case("breast cancer, 0.3, plain", "breast_cancer", 0.3, 5, method="plain"),
    Case("clusters, clean", "clusters", 0.0),
    Case("clusters, clean, plain", "clusters", 0.0, method="plain"),
    Case("clusters, 0.3", "clusters", 0.3),
    Case("clusters, 0.3, plain", "clusters", 0.3, method="plain"),
    Case("clusters, pair 0.3", "clusters", 0.3, kind="pair"),
    Case("clusters, pair 0.3, plain", "clusters", 0.3, kind="pair", method="plain"),
    Case("clusters, 0 to 0.46", "clusters", _FIVE, 5),
    Case("clusters, 0 to 0.46, plain", "clusters", _FIVE, 5, method="plain"),
    Case("digits as a table, clean", "digits_table", 0.0),
    Case("digits as a table, clean, plain", "digits_table", 0.0, method="plain"),
    Case("digits as a table, 0.3", "digits_table", 0.3),
    Case("digits as a table, 0.3, plain", "digits_table", 0.3, method="plain"),
    Case("digits as a table, pair 0.4", "digits_table", 0.4, kind="pair"),
    Case("digits as a table, pair 0.4, plain", "digits_table", 0.4, kind="pair", method="plain"),
    Case("digits as a table, rare classes, 0.3", "digits_table", 0.3, rarity=0.75),
    Case("digits as a table, rare classes, 0.3, plain", "digits_table", 0.3, method="plain", rarity=0.75),
    Case("MNIST 2,000, clean", "mnist_2000", 0.0, width=0.25),
    Case("MNIST 2,000, clean, plain", "mnist_2000", 0.0, method="plain", width=0.25),
    Case("MNIST 2,000, 0.3", "mnist_2000", 0.3, width=0.25),
    Case("MNIST 2,000, 0.3, plain", "mnist_2000", 0.3, method="plain", width=0.25),
    Case("MNIST 2,000, rare classes, 0.3", "mnist_2000", 0.3, width=0.25, rarity=0.75),
    Case("MNIST 2,000, rare classes, 0.3, plain", "mnist_2000", 0.3, method="plain", width=0.25, rarity=0.75),
    Case("MNIST under grain, 0.3", "mnist_grainy", 0.3, width=0.25),
    Case("MNIST under grain, 0.3, plain", "mnist_grainy", 0.3, method="plain", width=0.25),
    Case("MNIST under grain, 0 to 0.45", "mnist_grainy", _GRAINY, 5, width=0.25),
    Case("MNIST under grain, 0 to 0.45, plain", "mnist_grainy", _GRAINY, 5, method="plain", width=0.25),
    Case("CIFAR-10 3,000, clean", "cifar_3000", 0.0, width=0.5),
    Case("CIFAR-10 3,000, clean, plain", "cifar_3000", 0.0, method="plain", width=0.5),
    Case("CIFAR-10 3,000, 0.2", "cifar_3000", 0.2, width=0.5),
    Case("CIFAR-10 3,000, 0.4", "cifar_3000", 0.4, width=0.5),
    Case("CIFAR-10 3,000, 0.4, plain", "cifar_3000", 0.4, method="plain", width=0.5),
    Case("three grey classes, clean", "cifar_grey", 0.0, 5, width=0.125),
    Case("three grey classes, clean, plain", "cifar_grey", 0.0, 5, method="plain", width=0.125),
    Case("three grey classes, 0 to 0.46", "cifar_grey", _FIVE, 5, width=0.125),
    Case("three grey classes, 0 to 0.46, plain", "cifar_grey", _FIVE, 5, method="plain", width=0.125),
    Case("three grey classes, two rare, 0.2", "cifar_grey", 0.2, 5, width=0.125, rarity=0.35),
    Case("three grey classes, two rare, 0.2, plain", "cifar_grey", 0.2, 5, method="plain", width=0.125, rarity=0.35),
)


@dataclass(frozen=True)
class ListFigures:
    """How good one list is; AP and F1 are None where no label is wrong."""

    average_precision: float | None
    f1: float | None
    ece: float
    flagged: float
    mean_score: float
    within: int  # clients whose true share of wrong labels lies within the stated bounds


@dataclass(frozen=True)
class CaseFigures:
    """The figures of a case: accuracy on true labels in per cent, the noise, and the list before and now."""

    accuracy: float
    balanced: float  # the mean over classes of the accuracy
    noise: float
    fitted: float
    clients: int
    before: ListFigures
    now: ListFigures


def corrupt(labels: np.ndarray, classes: int, rates: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return labels of which a share is replaced by another class: any of them, or the next one (pair)."""
    flipped = rng.random(len(labels)) < rates
    steps = np.ones(int(flipped.sum()), int) if kind == "pair" else rng.integers(1, classes, int(flipped.sum()))
    changed: np.ndarray = labels.copy()
    changed[flipped] = (labels[flipped] + steps) % classes
    return changed


def measure(case: Case, workers: int | None = None) -> CaseFigures:
    """Run one case, or read the run that is there, and judge its labels with and without held-out ones.

    Args:
        case: the data, the noise and the method.
        workers: client processes; by default one per core.
    """
    images = getattr(stand_in_data, case.data)(Path(os.environ["ROFL_DATA"]) / "stand-ins")
    classes, rng = len(images.classes), np.random.default_rng([0, 7])
    train, test = (_arrays(part[:]) for part in (images.train, images.test))
    truth, test_truth = images.train_labels.numpy(), images.test_labels.numpy()
    held = min(len(truth) // 4, len(test_truth) // 2)  # the rest of the test part keeps its true labels
    if case.rarity < 1:
        kept, others = (_thin(part, case.rarity, rng) for part in (truth, test_truth[:held]))
        places = np.concatenate([others, np.arange(held, len(test_truth))])
        train, truth, test, test_truth, held = train[kept], truth[kept], test[places], test_truth[places], len(others)
    owners, other_owners = (rng.permutation(count) % case.clients for count in (len(truth), held))
    rates = np.broadcast_to(np.asarray(case.rates), (case.clients,))
    labels = corrupt(truth, classes, rates[owners], case.kind, rng)
    held_labels = corrupt(test_truth[:held], classes, rates[other_owners], case.kind, rng)
    data = rofl.as_dataset(
        {"images": train, "labels": labels, "owners": owners},
        test={"images": test[:held], "labels": held_labels},
        name="own-data",
    )
    width = {} if case.width is None else {"model__width": case.width}
    experiment = rofl.from_data(data, method=case.method, effort="quick", **width)
    if case.folder.exists():
        rofl.resume(case.folder, data=data, workers=workers)
    else:
        rofl.run(experiment, case.folder, data=data, workers=workers)
    model = rofl.load(case.folder)
    judged, others, tested = (torch.as_tensor(model.predict_proba(part)) for part in (train, test[:held], test[held:]))
    given, wrong = torch.from_numpy(labels), torch.from_numpy(labels != truth)
    rows = [torch.from_numpy(np.flatnonzero(owners == client)) for client in range(case.clients)]
    noise = estimate_noise(given, judged, (torch.from_numpy(held_labels), others))
    right = tested.argmax(dim=1).numpy() == test_truth[held:]
    return CaseFigures(
        accuracy=100 * float(right.mean()),
        balanced=100 * float(np.mean([right[test_truth[held:] == each].mean() for each in range(classes)])),
        noise=float(wrong.double().mean()),
        fitted=noise.rate,
        clients=case.clients,
        before=_figures(find_suspects(given, judged), wrong, rows),
        now=_figures(judge_clients(given, judged, noise, rows), wrong, rows, noise.rate_deviation),
    )


def _thin(labels: np.ndarray, rarity: float, rng: np.random.Generator) -> np.ndarray:
    """Return places of labels of which class k keeps `rarity` to the power of k."""
    places: np.ndarray = np.flatnonzero(rng.random(len(labels)) < rarity**labels)
    return places


def _arrays(part: Tensor) -> np.ndarray:
    array: np.ndarray = (part.flatten(1) if part.is_floating_point() else part).numpy()
    return array


def _figures(judged: JudgedLabels, wrong: Tensor, rows: list[Tensor], deviation: float = 0.0) -> ListFigures:
    """Return the figures of a list.

    Args:
        judged: the list.
        wrong: (n,) which labels are wrong.
        rows: the samples of each client.
        deviation: of the fitted rate of wrong labels.
    """
    bounds = [noise_interval(judged.flagged[part], judged.score[part], judged.doubt[part], deviation) for part in rows]
    shares = [float(wrong[part].double().mean()) for part in rows]
    return ListFigures(
        average_precision=average_precision(judged.score, wrong) if bool(wrong.any()) else None,
        f1=detection(judged.flagged, wrong).f1 if bool(wrong.any()) else None,
        ece=calibration_error(judged.score, wrong) or 0.0,
        flagged=float(judged.flagged.double().mean()),
        mean_score=float(judged.score.mean()),
        within=sum(low <= share <= high for (low, high), share in zip(bounds, shares, strict=True)),
    )


def table(records: dict[str, Any]) -> str:
    """Return the finished cases as a Markdown table."""
    heads = ["case", "accuracy, mean over classes", "noise: true, fitted", "AP: before, now", "F1", "ECE", "flagged"]
    lines = ["| " + " | ".join([*heads, "clients within bounds"]) + " |"]
    lines.append("|" + "---|" * 8)
    for case in CASES:
        if case.name not in records:
            continue
        found = records[case.name]
        pairs = [(found["before"][key], found["now"][key]) for key in ("average_precision", "f1", "ece", "flagged")]
        cells = [", ".join("-" if value is None else f"{value:.3f}" for value in pair) for pair in pairs]
        within = f"{found['before']['within']}, {found['now']['within']} of {found['clients']}"
        facts = [
            case.name,
            f"{found['accuracy']:.1f}, {found['balanced']:.1f}",
            f"{found['noise']:.3f}, {found['fitted']:.3f}",
        ]
        lines.append("| " + " | ".join([*facts, *cells, within]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run the cases that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}, and run nothing")
    parser.add_argument("--workers", type=int, default=None, help="client processes; the digests do not depend on it")
    options = parser.parse_args()
    records = read_records(RECORDS)
    for case in [] if options.write else CASES:
        if case.name not in records:
            add_record(RECORDS, records, case.name, asdict(measure(case, options.workers)))
    if options.write:
        write_table(PAGE, _BEGIN, _END, table(records))
    print(table(records))


if __name__ == "__main__":
    main()
