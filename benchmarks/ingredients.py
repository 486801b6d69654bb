"""What each ingredient of rofl-plus gives: the method without it, on stand-ins of different kinds.

    ROFL_DATA=... python -m benchmarks.ingredients           # runs what is missing: about an hour on two cores
    python -m benchmarks.ingredients --write                 # the tables in docs/benchmark.md

A cell is one stand-in of `benchmarks.stand_ins`, one variant and one seed. Finished cells are kept in
benchmarks/records/ingredients.json.
"""

import argparse
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev

import rofl
from benchmarks.page_table import write_table
from benchmarks.record_file import add_record, read_records
from benchmarks.stand_ins import StandIn, stand_ins
from rofl.training.run_dir import RunDir

RECORDS = Path("benchmarks/records/ingredients.json")
PAGE = Path("docs/benchmark.md")
_BEGIN, _END = "<!-- begin: python -m benchmarks.ingredients --write -->", "<!-- end of ingredients -->"
_NAMES = (
    "clusters, symmetric 0.3",
    "breast cancer, symmetric 0.3",
    "digits as a table, no noise",
    "digits as a table, symmetric 0.4",
    "digits as a table, pair 0.4",
    "digits, symmetric 0.3",
    "MNIST 2,000, symmetric 0.4",
    "MNIST 2,000, Dirichlet 0.3, symmetric 0.3",
    "CIFAR-10 3,000, symmetric 0.4",
)
VARIANTS: dict[str, dict[str, object]] = {
    "all": {},
    "labels as given": {"method__correct": False},
    "belief always full": {"method__caution": 0.0},
    "labels not sharpened": {"method__sharpness": 1.0},
    "judged with the client's own part": {"method__leave_one_out": False},
    "judged by the classifier alone": {"method__centroid_judge": False},
    "logits not shifted": {"method__logit_adjustment": False},
    "no memory": {"method__memory": 0.0},
    "full server steps": {"method__server_step": 1.0},
}


@dataclass(frozen=True)
class Figures:
    """What a run gave: accuracy in per cent, mean of the last ten rounds, and the average precision of its list."""

    accuracy: float
    average_precision: float | None


Records = dict[str, dict[str, float | None]]  # by `<stand-in> | <variant> | <seed>`


def measure(stand_in: StandIn, variant: str, seed: int, workers: int | None = None) -> Figures:
    """Run rofl-plus in a variant on one stand-in, or resume or read the run that is there.

    Args:
        stand_in: the data, the noise and the network.
        variant: one of `VARIANTS`.
        seed: of the split, the noise and the training.
        workers: client processes; by default one per core.
    """
    name = f"{stand_in.name}-{variant}-{seed}".replace(",", "").replace("'", "").replace(" ", "-")
    folder = RunDir(Path("runs/ingredients") / name)
    if folder.exists():
        run = rofl.resume(folder.path, workers=workers)
    else:
        settings = {**stand_in.settings, **VARIANTS[variant]}
        run = rofl.run(rofl.preset("digits", method="rofl-plus", seed=seed, **settings), folder.path, workers=workers)
    audit = run.summary.audit
    return Figures(run.summary.test_accuracy or 0.0, audit.average_precision if audit else None)


def tables(records: Records) -> str:
    """Return accuracy and average precision as Markdown, a row for each variant and a column for each stand-in."""
    parts = [
        _table("Accuracy in per cent", records, "accuracy", _percent),
        _table("Average precision of the list of suspects", records, "average_precision", "{:.3f}".format),
    ]
    return "\n\n".join(parts)


def _table(title: str, records: Records, key: str, form: Callable[[float], str]) -> str:
    columns = [name for name in _NAMES if _values(records, name, "all", key)]
    header = [title, *columns, "mean change", "worst change"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for variant in VARIANTS:
        found = {name: _values(records, name, variant, key) for name in columns}
        if not any(found.values()):
            continue
        cells = [_spread(values, form) for values in found.values()]
        changes = [
            mean(values) - mean(_values(records, name, "all", key)[: len(values)])
            for name, values in found.items()
            if values
        ]
        ends = ["", ""] if variant == "all" else [f"{mean(changes):+.3g}", f"{min(changes):+.3g}"]
        lines.append("| " + " | ".join([variant, *cells, *ends]) + " |")
    return "\n".join(lines)


def _values(records: Records, name: str, variant: str, key: str) -> list[float]:
    """Return a figure of all finished seeds, in order."""
    found = [value for place, value in sorted(records.items()) if place.startswith(f"{name} | {variant} | ")]
    return [value for each in found if (value := each[key]) is not None]


def _percent(value: float) -> str:
    return f"{value:.1f}"


def _spread(values: list[float], form: Callable[[float], str]) -> str:
    if not values:
        return "-"
    return form(mean(values)) + (f" ± {form(stdev(values))}" if len(values) > 1 else "")


def main() -> None:
    """Run the cells that are missing, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stand-ins", nargs="*", default=None, help="the groups of benchmarks.stand_ins; all of them")
    parser.add_argument("--workers", type=int, default=None, help="client processes; the digests do not depend on it")
    parser.add_argument("--write", action="store_true", help=f"write the tables into {PAGE}, and run nothing")
    options = parser.parse_args()
    records = read_records(RECORDS)
    chosen = [each for each in stand_ins() if each.name in _NAMES]
    for seed in [] if options.write else range(options.seeds):
        for stand_in in chosen:
            for variant in VARIANTS:
                key = f"{stand_in.name} | {variant} | {seed}"
                if key in records or (options.stand_ins is not None and stand_in.group not in options.stand_ins):
                    continue
                add_record(RECORDS, records, key, asdict(measure(stand_in, variant, seed, options.workers)))
    if options.write:
        write_table(PAGE, _BEGIN, _END, tables(records))
    print(tables(records))


if __name__ == "__main__":
    main()
