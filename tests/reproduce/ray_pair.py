"""Runs short cells on a Ray cluster of two nodes on this machine: `python -m tests.reproduce.ray_pair FOLDER`.

It prints a JSON object: digest and node of each cell, and the problems that were met.
"""

import json
import os
import sys
from pathlib import Path

import rofl
from rofl.config.schema import Experiment
from rofl.reproduce.cell_usage import read_usage
from rofl.reproduce.ray_cells import run_cells_on_ray
from rofl.reproduce.run_cache import RunCache

PLUGIN = "tests.simulation.toy_plugin:FedProx"


def cells() -> list[Experiment]:
    """Return cells of a second, one by a method from elsewhere and one whose data is not there."""
    short = {"rounds": 2, "clients": 4, "cohort": 2, "data__train": 200, "model__name": "mlp"}
    chosen = [rofl.preset("digits", seed=seed, method=name, **short) for seed in (0, 1) for name in ("plain", "rofl")]
    chosen.append(rofl.preset("digits", method=PLUGIN, **short))
    return [*chosen, rofl.preset("digits", method="plain", **{**short, "data__name": "covidx_mini"})]


def main() -> None:
    """Start the cluster, run the cells twice, and print what came of them."""
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's own 15 would wait for whatever else the machine does
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        cluster.add_node(num_cpus=1)
        os.environ["RAY_ADDRESS"] = cluster.address
        cache = RunCache(Path(sys.argv[1]))
        seen: list[int] = []
        empty = Path(sys.argv[1]) / "no-data"
        problems = run_cells_on_ray(cells(), cache, "ray", empty, lambda now: seen.append(now.rounds))
        finished = [cache.find(cell) for cell in cells() if cache.is_finished(cell)]
        written = [run_dir.read_summary().digest for run_dir in finished]
        nodes = [read_usage(run_dir.path).node for run_dir in finished]
        again = run_cells_on_ray(cells()[:5], cache, "ray")  # nothing is left to do
        found = {"digests": written, "nodes": nodes, "problems": list(problems.values()), "again": len(again)}
        print(json.dumps({**found, "progress": max(seen)}))
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
