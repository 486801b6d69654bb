"""What differential privacy costs: accuracy and detection on digits by the noise, and the epsilon it buys.

All 20 clients take part in every round, 40 % of the labels are wrong, and the network has half its width: about a
minute and a half a run. Finished runs are kept in --out, so that the script may be stopped and started again.

    python benchmarks/privacy_cost.py --out runs/privacy
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import rofl
from rofl.training.privacy_budget import epsilon
from rofl.training.run_dir import RunDir

CLIENTS, MANY, DELTA = 20, 1000, 1e-5
METHODS, NOISES = ("plain", "rofl"), (None, 0.0, 0.03, 0.1, 0.3, 1.0)  # None: without differential privacy


def outcome(method: str, noise: float | None, seed: int, chosen: argparse.Namespace) -> dict[str, Any]:
    """The summary of one run, which is made where it is not there yet."""
    private = {} if noise is None else {"privacy__clip": chosen.clip, "privacy__noise": noise}
    experiment = rofl.preset(
        "digits",
        method=method,
        seed=seed,
        cohort=CLIENTS,
        rounds=chosen.rounds,
        model__width=0.5,
        noise__ratio=0.4,
        **private,
    )
    privacy = "off" if noise is None else f"{chosen.clip:g}-{noise:g}"
    place = chosen.out / f"{method}-{privacy}-r{chosen.rounds}-s{seed}"
    if RunDir(place).exists():
        return rofl.resume(place, workers=1).summary
    return rofl.run(experiment, place, workers=1).summary


def lines(chosen: argparse.Namespace) -> Iterator[str]:
    """The table in Markdown; the last two columns say what the same noise on the mean would buy with many clients."""
    yield f"| method | noise | epsilon | accuracy | precision | recall | noise, epsilon with {MANY} clients |"
    yield "|---|---|---|---|---|---|---|"
    for method in METHODS:
        for noise in NOISES:
            found = [outcome(method, noise, seed, chosen) for seed in range(chosen.seeds)]
            accuracy = mean(each["test_accuracy"] for each in found)
            precision, recall = (
                mean(each["detection"][name] or 0.0 for each in found) for name in found[0]["detection"]
            )
            many = (noise or 0.0) * MANY / CLIENTS
            bought = f"{many:g}, {_text(chosen.rounds, many)}" if noise else "-"
            told = f"{noise:g} | {_text(chosen.rounds, noise)}" if noise is not None else "off | -"
            yield f"| {method} | {told} | {accuracy:.1f} | {precision:.3f} | {recall:.3f} | {bought} |"


def _text(rounds: int, noise: float) -> str:
    found = epsilon(rounds, noise, DELTA)
    return "infinite" if found == float("inf") else f"{found:.3g}" if found < 1000 else f"{found:.0f}"


def main() -> int:
    """Run what is missing, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/privacy"))
    for line in lines(parser.parse_args()):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
