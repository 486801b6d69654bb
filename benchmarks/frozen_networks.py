"""Seconds of a round, and bytes of an update, with a network that is trained as a whole, by adapters, or frozen.

`python -m benchmarks.frozen_networks` prints the table of docs/networks.md. Processor time of one core is counted, so
that other programs do not matter. The weights are random: they cost the same.
"""

import tempfile
import time
from pathlib import Path

import torch

import rofl
from rofl.data.dataset import Dataset
from rofl.models import build
from rofl.training.inputs import load_inputs
from rofl.training.local_engine import start_simulation
from rofl.training.network_choice import settle_network

NETWORK, SIDE, SAMPLES, CLIENTS = "timm:resnet18", 64, 200, 4
PARTS: dict[str, dict[str, object]] = {
    "as a whole": {},
    "`model.lora = 8`": {"model__lora": 8},
    "`model.freeze`": {"model__freeze": True},
}


def main() -> None:
    """Measure and print."""
    rng = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (SAMPLES, 3, SIDE, SIDE), generator=rng).to(torch.uint8)
    data = Dataset.from_arrays(pixels, torch.arange(SAMPLES) % 4, test=(pixels[:4], torch.arange(4)))
    print("| trained | before the first round | a round | up, a client and round |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.pth"
        net = build(NETWORK, (3, SIDE, SIDE), 4, 1.0, 0)
        torch.save({name: value for name, value in net.state_dict().items() if name.startswith("extractor")}, weights)
        for part, changes in PARTS.items():
            print(f"| {part} | {measure(data, weights, changes)} |", flush=True)


def measure(data: Dataset, weights: Path, changes: dict[str, object]) -> str:
    """Return the cells of a row: seconds before the first round, seconds of a round, and megabytes.

    Args:
        data: the samples.
        weights: of the network.
        changes: which part of it is trained.
    """
    own = {"model__name": NETWORK, "model__weights": str(weights), "method__epochs": 1, **changes}
    experiment = rofl.from_data(data, method="plain", clients=CLIENTS, **own)
    federated, network = load_inputs(experiment, None, data)
    experiment, network = settle_network(experiment, network)
    state = experiment.build_method().init(network.build())
    started = time.process_time()
    with start_simulation(experiment, federated, network, state, workers=0) as simulation:
        ready = time.process_time()
        result = simulation.run_round(state, 1)
        seconds = time.process_time() - ready
    sent = result.traffic.up_model / len(result.cohort) / 1e6
    return f"{ready - started:.1f} s | {seconds:.2f} s | {sent:.3f} MB"


if __name__ == "__main__":
    main()
