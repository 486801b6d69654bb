"""Whether our audit finds wrong labels at least as well as cleanlab, fed with the same model's probabilities.

A model is trained once per data set, or taken from an earlier run of this script; then both judge the training labels.
cleanlab is used as its documentation begins: `find_label_issues` for flags, `get_label_quality_scores` for the order.

    pip install -c constraints.txt -e '.[bench]'
    ROFL_DATA=... python benchmarks/audit_against_cleanlab.py --out runs/audit --seeds 3
"""

import argparse
import platform
import sys
import time
from pathlib import Path
from statistics import mean

import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from torch import Tensor

import rofl
from rofl.audit import average_precision, detection, find_suspects, suggestion_accuracy
from rofl.errors import UserError
from rofl.training.inputs import load_inputs
from rofl.training.local_engine import start_simulation
from rofl.training.run_dir import RunDir
from rofl.training.runner import resume

SETS = {
    "digits, symmetric 0.4": ("digits", {"noise__ratio": 0.4}),
    "mnist-lite, symmetric 0.4": ("mnist-lite", {"noise__ratio": 0.4}),
    "CIFAR-10N worse, lite": ("cifar10n-lite", {}),
}


def trained(preset: str, changes: dict[str, object], seed: int, out: Path) -> Path:
    """The folder of a finished run."""
    place = RunDir(out / f"{preset}-s{seed}")
    if place.exists():
        return resume(place.path).folder
    return rofl.run(rofl.preset(preset, seed=seed, **changes), place.path).folder


def scores(flagged: Tensor, score: Tensor, wrong: Tensor) -> tuple[float, float]:
    """Average precision and F1."""
    return average_precision(score, wrong) or 0.0, detection(flagged, wrong).f1 or 0.0


def compare(folder: Path) -> dict[str, float]:
    """Both audits of one run."""
    place = RunDir(folder)
    experiment, checkpoint = place.read_experiment(), place.checkpoints.read()
    assert checkpoint is not None
    federated, network = load_inputs(experiment, None)
    with start_simulation(experiment, federated, network, checkpoint.server_state) as simulation:
        logits, _ = simulation.predict(checkpoint.server_state, "train", len(federated.labels))
    probabilities = logits.double().softmax(dim=1)
    started = time.perf_counter()
    ours = find_suspects(federated.labels, probabilities)
    our_seconds = time.perf_counter() - started
    started = time.perf_counter()
    issues = torch.from_numpy(find_label_issues(federated.labels.numpy(), probabilities.numpy(), n_jobs=1))
    quality = torch.from_numpy(get_label_quality_scores(federated.labels.numpy(), probabilities.numpy()))
    their_seconds = time.perf_counter() - started
    our_ap, our_f1 = scores(ours.flagged, ours.score, federated.wrong)
    their_ap, their_f1 = scores(issues, -quality, federated.wrong)
    right = suggestion_accuracy(ours, federated.images.train_labels, federated.wrong) or 0.0
    return {
        "our AP": our_ap,
        "cleanlab's AP": their_ap,
        "our F1": our_f1,
        "cleanlab's F1": their_f1,
        "right suggestions": right,
        "time, ours over cleanlab's": our_seconds / their_seconds,
    }


def main() -> int:
    """Print a table, and whether ours is as good everywhere."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/audit"), help="where the runs are kept")
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    print(f"{platform.platform()}, torch {torch.__version__}, seeds 0 to {chosen.seeds - 1}, means over them")
    holds, headed = True, False
    for name, (preset, changes) in SETS.items():
        try:
            found = [compare(trained(preset, changes, seed, chosen.out)) for seed in range(chosen.seeds)]
        except UserError as error:
            print(f"{name}: not run. {error}")
            continue
        means = {key: mean(each[key] for each in found) for key in found[0]}
        if not headed:
            headed = True
            print("| data | " + " | ".join(means) + " |\n" + "|---" * (len(means) + 1) + "|")
        print(f"| {name} | " + " | ".join(f"{value:.4f}" for value in means.values()) + " |")
        holds &= means["our AP"] >= means["cleanlab's AP"] and means["our F1"] >= means["cleanlab's F1"]
    print("holds: ours is at least as good everywhere" if holds else "does not hold everywhere")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
