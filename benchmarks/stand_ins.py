"""How rofl and rofl-plus do on data that nobody tuned to, judged by the worst of many stand-ins.

    ROFL_DATA=... python -m benchmarks.stand_ins            # all cells; finished ones are kept
    python -m benchmarks.stand_ins --cells tables --seeds 1
    python -m benchmarks.stand_ins --write                  # the table in docs/stand-ins.md, from the finished cells

A cell is one stand-in with one seed. Its run folders are in runs/stand-ins, its figures in
benchmarks/records/stand-ins.json. All methods have the network, the steps and the labels of the cell in common.
"""

import argparse
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING

import rofl
from benchmarks.page_table import write_table
from benchmarks.record_file import add_record, read_records
from rofl.errors import UserError
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run

if TYPE_CHECKING:
    from benchmarks.cleanlab_folds import CleanlabFigures

METHODS = ("plain", "rofl", "rofl-plus")
CLEANLAB = "cleanlab"
RECORDS = Path("benchmarks/records/stand-ins.json")
PAGE = Path("docs/stand-ins.md")
_BEGIN, _END = "<!-- begin: python -m benchmarks.stand_ins --write -->", "<!-- end -->"
_DATA = "benchmarks.stand_in_data:"
_TABLE = {"model__name": "mlp", "method__batch": 20}


@dataclass(frozen=True)
class StandIn:
    """A data set, its noise and its network."""

    name: str
    group: str
    settings: dict[str, object]
    seeds: int = 3


@dataclass(frozen=True)
class Figures:
    """What one run of a cell gave; a figure of the list of suspects is None where no label is wrong."""

    last: float  # accuracy in per cent, mean of the last ten rounds
    best: float  # of the best round, by the true test labels: no user could choose it
    average_precision: float | None
    f1: float | None
    ece: float | None
    estimated_noise: float | None
    true_noise: float | None
    seconds: float


def stand_ins() -> list[StandIn]:
    """Return all stand-ins; the smaller ones first."""
    small = {"model__name": "small", "model__width": 0.5}
    tiny = {"model__name": "small", "model__width": 0.25, "method__batch": 25}
    cnn9 = {"model__name": "cnn9", "model__width": 0.125}
    return [
        StandIn("wine, symmetric 0.3", "tables", _cell("wine", 0.3, 5, **_TABLE)),
        StandIn("breast cancer, symmetric 0.3", "tables", _cell("breast_cancer", 0.3, 5, **_TABLE)),
        StandIn("clusters, symmetric 0.3", "tables", _cell("clusters", 0.3, **_TABLE)),
        StandIn("clusters, pair 0.3", "tables", _cell("clusters", 0.3, noise__kind="pair", **_TABLE)),
        StandIn("digits as a table, no noise", "tables", _cell("digits_table", 0.0, **_TABLE)),
        StandIn("digits as a table, symmetric 0.4", "tables", _cell("digits_table", 0.4, **_TABLE)),
        StandIn("digits as a table, pair 0.4", "tables", _cell("digits_table", 0.4, noise__kind="pair", **_TABLE)),
        StandIn("MNIST pixels, symmetric 0.4", "tables", _cell("mnist_table", 0.4, **_TABLE), 2),
        StandIn("digits, symmetric 0.3", "digits", _cell("digits", 0.3, **small), 2),
        StandIn("digits, pair 0.4", "digits", _cell("digits", 0.4, noise__kind="pair", **small), 2),
        StandIn("MNIST 2,000, symmetric 0.4", "mnist", _cell("mnist_2000", 0.4, **tiny), 1),
        StandIn(
            "MNIST 2,000, Dirichlet 0.3, symmetric 0.3",
            "mnist",
            _cell("mnist_2000", 0.3, data__partition="dirichlet", data__alpha=0.3, **tiny),
            1,
        ),
        StandIn("MNIST 2,000 under grain, symmetric 0.3", "mnist", _cell("mnist_grainy", 0.3, **tiny), 1),
        StandIn(
            "COVIDx sample, clients 0 to 0.5",
            "covidx",
            _cell("covidx_mini", 0.25, 5, noise__client_spread=0.25, **{**small, "method__batch": 12}),
            1,
        ),
        StandIn("CIFAR-10 3,000, no noise", "cifar", _cell("cifar_3000", 0.0, **small), 1),
        StandIn("CIFAR-10 3,000, symmetric 0.4", "cifar", _cell("cifar_3000", 0.4, **small), 1),
        StandIn("CIFAR-10 6,000, pair 0.3", "cifar", _cell("cifar_6000", 0.3, noise__kind="pair", **small), 1),
        StandIn(
            "three grey classes of CIFAR-10 at 32 pixels, clients 0 to 0.46",
            "unseen",
            _cell("cifar_grey", 0.23, 5, noise__client_spread=0.23, method__batch=50, method__epochs=3, **cnn9),
            1,
        ),
    ]


def _cell(data: str, ratio: float, clients: int = 10, **settings: object) -> dict[str, object]:
    """Return the settings that all methods of a stand-in share: 30 rounds with all clients."""
    name = data if data in ("digits", "covidx_mini") else _DATA + data
    shared = {"data__name": name, "noise__ratio": ratio, "clients": clients, "cohort": clients, "rounds": 30}
    return {"method__lr": 0.1, "method__batch": 36, **shared, **settings}


def measure(stand_in: StandIn, method: str, seed: int, workers: int | None = None) -> Figures:
    """Run one method on one stand-in, or resume or read the run that is there, and return its figures.

    Args:
        stand_in: the data, the noise and the network.
        method: the method's name.
        seed: of the split, the noise and the training.
        workers: client processes; by default one per core.
    """
    folder = RunDir(Path("runs/stand-ins") / f"{stand_in.name.replace(' ', '-').replace(',', '')}-{method}-{seed}")
    extra: dict[str, object] = {"method__tau": "auto", "method__t_pl": 10} if method == "rofl" else {}
    if folder.exists():
        run: Run = rofl.resume(folder.path, workers=workers)
    else:
        experiment = rofl.preset("digits", method=method, seed=seed, **{**stand_in.settings, **extra})
        run = rofl.run(experiment, folder.path, workers=workers)
    summary, audit = run.summary, run.summary.audit
    if audit and audit.calibration_error is None:  # a run of an earlier version
        audit = rofl.audit_run(folder.path, workers=workers).metrics().audit
    return Figures(
        last=summary.test_accuracy or 0.0,
        best=summary.best_accuracy or 0.0,
        average_precision=audit.average_precision if audit else None,
        f1=audit.f1 if audit else None,
        ece=audit.calibration_error if audit else None,
        estimated_noise=summary.estimated.ratio if summary.estimated else None,
        true_noise=summary.noise.achieved,
        seconds=summary.seconds,
    )


def _measure_cleanlab(stand_in: StandIn, seed: int) -> "CleanlabFigures":
    from benchmarks.cleanlab_folds import measure_cleanlab  # cleanlab is an extra

    return measure_cleanlab(stand_in.settings, seed)


def table(records: dict[str, dict[str, float | None]]) -> str:
    """Return the finished cells as a Markdown table, one row for each stand-in."""
    header = ["stand-in", "seeds", "plain: last 10 (best round)", "rofl", "rofl-plus", "AP / F1 of the suspects: plain"]
    header += ["rofl", "rofl-plus", "cleanlab", "ECE of rofl-plus", "noise: true, estimated"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for stand_in in stand_ins():
        runs = {name: _of(records, stand_in.name, name) for name in METHODS}
        if not (runs["plain"] and runs["rofl-plus"]):
            continue
        plain, plus = runs["plain"], runs["rofl-plus"]
        cells = [stand_in.name, str(len(plain)), f"{_spread(plain, 'last')} ({_spread(plain, 'best')})"]
        cells += [_spread(runs[name], "last") for name in ("rofl", "rofl-plus")]
        runs[CLEANLAB] = _of(records, stand_in.name, CLEANLAB)
        lists = [runs[name] for name in (*METHODS, CLEANLAB)]
        cells += [f"{_mean(found, 'average_precision')} / {_mean(found, 'f1')}" for found in lists]
        cells += [_mean(plus, "ece"), f"{_mean(plus, 'true_noise')}, {_mean(plus, 'estimated_noise')}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _of(records: dict[str, dict[str, float | None]], name: str, method: str) -> list[dict[str, float | None]]:
    return [value for key, value in records.items() if key.startswith(f"{name} | {method} | ")]


def _values(runs: list[dict[str, float | None]], key: str) -> list[float]:
    return [value for run in runs if (value := run.get(key)) is not None]


def _mean(runs: list[dict[str, float | None]], key: str) -> str:
    values = _values(runs, key)
    return f"{mean(values):.3f}" if values else "-"


def _spread(runs: list[dict[str, float | None]], key: str) -> str:
    values = _values(runs, key)
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}" if values else "-"


def main() -> None:
    """Run the cells that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="*", default=None, help="groups: tables, digits, mnist, covidx, cifar, unseen")
    parser.add_argument("--seeds", type=int, default=None, help="at most so many seeds of each stand-in")
    parser.add_argument("--workers", type=int, default=None, help="client processes; the digests do not depend on it")
    parser.add_argument("--cleanlab", action="store_true", help="also cleanlab's lists, out of fold; needs [bench]")
    parser.add_argument("--again", action="store_true", help="read the figures of finished runs once more")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE}, and run nothing")
    options = parser.parse_args()
    records = read_records(RECORDS)  # by `<stand-in> | <method> | <seed>`
    chosen = [each for each in stand_ins() if options.cells is None or each.group in options.cells]
    for stand_in in [] if options.write else chosen:
        for seed in range(min(stand_in.seeds, options.seeds or stand_in.seeds)):
            for method in (*METHODS, *([CLEANLAB] if options.cleanlab else [])):
                key = f"{stand_in.name} | {method} | {seed}"
                if key in records and (not options.again or method == CLEANLAB):
                    continue
                try:
                    figures = (
                        _measure_cleanlab(stand_in, seed)
                        if method == CLEANLAB
                        else measure(stand_in, method, seed, options.workers)
                    )
                except UserError as error:  # data that is not here
                    print(f"{key}: left out. {error}")
                    continue
                machine = f"{platform.machine()}, {platform.system()}"
                add_record(RECORDS, records, key, {**asdict(figures), "machine": machine})
    if options.write:
        write_table(PAGE, _BEGIN, _END, table(records))
    print(table(records))


if __name__ == "__main__":
    main()
