"""What a scene holds, for the terminal."""

from typing import Any

import torch
from rich.table import Table

from rofl.data.federated import FederatedDataset
from rofl.data.sampled_clients import client_sizes


def describe(federated: FederatedDataset) -> dict[str, Any]:
    """Sizes, and the share of wrong labels of all and of each client."""
    sizes = torch.as_tensor(client_sizes(federated.parts))
    return {
        "dataset": federated.images.name,
        "noise": federated.spec.noise.text,
        "seed": federated.spec.seed,
        "clients": len(sizes),
        "samples": len(federated.labels),
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
        "classes": len(federated.images.classes),
        "truth_known": federated.images.truth_known,
        "wrong": federated.noise_ratio,
        "client_wrong": federated.client_noise_rates,
    }


def scene_table(federated: FederatedDataset) -> Table:
    """The same, for people."""
    facts = describe(federated)
    table = Table(title=f"{facts['dataset']}, {facts['noise']}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    shares = [100 * share for share in facts["client_wrong"]]
    made = "wrong labels" if facts["truth_known"] else "labels made wrong"  # nobody knows how many were before
    rows = {
        "clients": f"{facts['clients']}, with {facts['smallest_client']} to {facts['largest_client']} samples",
        "samples": str(facts["samples"]),
        "classes": str(facts["classes"]),
        made: f"{100 * facts['wrong']:.1f} %",
        "per client": f"{min(shares):.1f} to {max(shares):.1f} %",
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table
