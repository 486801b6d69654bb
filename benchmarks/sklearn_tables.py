"""How federated training on tables compares with scikit-learn on the pooled rows, with the same wrong labels.

    python -m benchmarks.sklearn_tables            # prints the table
    python -m benchmarks.sklearn_tables --write    # writes it into docs/stand-ins.md

The figures of plain and rofl-plus are those of `benchmarks.stand_ins`, which has to run first. scikit-learn's see all
rows in one place, which no federation does, and have their default settings.
"""

import argparse
from statistics import mean

import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import rofl
from benchmarks.record_file import read_records
from benchmarks.stand_ins import PAGE, RECORDS, StandIn, stand_ins
from rofl.data.atomic import atomic_write
from rofl.data.federated import load_federated

_BEGIN, _END = "<!-- begin: python -m benchmarks.sklearn_tables --write -->", "<!-- end of sklearn_tables -->"
_CLASSIFIERS = {
    "logistic regression": lambda seed: LogisticRegression(max_iter=1000, random_state=seed),
    "random forest": lambda seed: RandomForestClassifier(random_state=seed),
}


def sklearn_accuracy(stand_in: StandIn, classifier: str, seed: int) -> float:
    """Return the accuracy in per cent on the test part of a classifier fitted to the given labels."""
    experiment = rofl.preset("digits", method="plain", seed=seed, **stand_in.settings)
    federated = load_federated(experiment.split)
    images = federated.images
    rows = torch.cat(list(federated.parts))
    assert isinstance(images.train, Tensor)
    assert isinstance(images.test, Tensor)
    model = _CLASSIFIERS[classifier](seed).fit(images.train[rows].flatten(1).numpy(), federated.labels[rows].numpy())
    return 100 * float(model.score(images.test.flatten(1).numpy(), images.test_labels.numpy()))


def table() -> str:
    """Return a Markdown table with a row for each stand-in that is a table and has finished runs."""
    records = read_records(RECORDS)
    lines = ["| table | logistic regression | random forest | plain | rofl-plus |", "|---|---|---|---|---|"]
    for stand_in in stand_ins():
        if stand_in.group != "tables":
            continue
        runs = {
            method: [records.get(f"{stand_in.name} | {method} | {seed}") for seed in range(stand_in.seeds)]
            for method in ("plain", "rofl-plus")
        }
        if not all(run for of_method in runs.values() for run in of_method):
            continue
        cells = [
            f"{mean(sklearn_accuracy(stand_in, name, seed) for seed in range(stand_in.seeds)):.1f}"
            for name in _CLASSIFIERS
        ]
        cells += [f"{mean(run['last'] or 0.0 for run in of_method if run):.1f}" for of_method in runs.values()]
        lines.append(f"| {stand_in.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/stand-ins.md")
    write = parser.parse_args().write
    found = table()
    if not write:
        print(found)
        return
    page = PAGE.read_text()
    before, _, rest = page.partition(_BEGIN)
    atomic_write(PAGE, f"{before}{_BEGIN}\n{found}\n{_END}{rest.partition(_END)[2]}")


if __name__ == "__main__":
    main()
