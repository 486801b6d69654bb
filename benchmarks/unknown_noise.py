"""What it costs not to know the noise ratio: tau = "auto" beside the known one, and plain where nothing is wrong.

Finished runs are kept in --out, so that the script may be stopped and started again.

    ROFL_DATA=... python benchmarks/unknown_noise.py --data digits --data mnist-lite --seeds 3 --out runs/unknown
"""

import argparse
import sys
from pathlib import Path
from statistics import mean, stdev

import rofl
from rofl.config.schema import Experiment
from rofl.reproduce.cell_runner import run_cells
from rofl.reproduce.run_cache import RunCache
from rofl.simulation.worker_pool import cores

NOISES = (("symmetric", 0.0), ("symmetric", 0.2), ("symmetric", 0.4), ("symmetric", 0.6), ("pair", 0.2), ("pair", 0.4))
WITHIN, WITHIN_CLEAN = 1.0, 0.5  # points of accuracy that may be lost


def experiments(data: str, kind: str, ratio: float, seeds: int) -> dict[str, list[Experiment]]:
    """The runs of one line: where nothing is wrong, plain is the measure."""
    noise = {"noise__kind": kind, "noise__ratio": ratio}
    other = {"method": "plain"} if ratio == 0 else {"method__tau": "known"}
    return {
        "auto": [rofl.preset(data, seed=seed, method__tau="auto", **noise) for seed in range(seeds)],
        "other": [rofl.preset(data, seed=seed, **other, **noise) for seed in range(seeds)],
    }


def text(values: list[float]) -> str:
    """Mean and sample standard deviation."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", action="append", choices=("digits", "mnist-lite"), required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/unknown"))
    parser.add_argument("--show", action="store_true", help="run nothing, show what is finished")
    chosen = parser.parse_args()
    lines = {
        (data, kind, ratio): experiments(data, kind, ratio, chosen.seeds)
        for data in chosen.data
        for kind, ratio in NOISES
    }
    store = RunCache(chosen.out)
    if not chosen.show:
        by_seed = sorted((one for runs in lines.values() for both in runs.values() for one in both), key=_seed)
        for path, problem in run_cells(by_seed, store, jobs=cores(), workers=0).items():
            print(f"{path.name}: {problem}")
    holds = True
    print("| data | noise | known (plain at 0) | auto | difference | estimated ratio |\n|---|---|---|---|---|---|")
    for (data, kind, ratio), runs in lines.items():
        found = {name: [_summary(store, one) for one in both] for name, both in runs.items()}
        if not all(each for both in found.values() for each in both):
            holds = False
            print(f"| {data} | {kind} {ratio:g} | not finished |")
            continue
        auto, other = ([each["test_accuracy"] for each in found[name]] for name in ("auto", "other"))
        lost = mean(other) - mean(auto)
        holds &= lost <= (WITHIN if ratio else WITHIN_CLEAN)
        ratios = [each["estimated"]["ratio"] for each in found["auto"]]
        print(f"| {data} | {kind} {ratio:g} | {text(other)} | {text(auto)} | {-lost:+.2f} | {mean(ratios):.3f} |")
    print("holds" if holds else "does not hold everywhere, or is not finished")
    return 0 if holds else 1


def _seed(one: Experiment) -> int:
    return one.seed


def _summary(store: RunCache, one: Experiment) -> dict:
    place = store.place(one)
    return place.read_summary() if place.is_finished() else {}


if __name__ == "__main__":
    sys.exit(main())
