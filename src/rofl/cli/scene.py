"""What a scene holds, for the terminal."""

from typing import Any

import torch
from rich.table import Table

from rofl.data.parts import sizes_of
from rofl.scene import Scene


def describe(scene: Scene) -> dict[str, Any]:
    """Sizes, and the share of wrong labels of all and of each client."""
    sizes = torch.as_tensor(sizes_of(scene.parts))
    return {
        "dataset": scene.images.name,
        "noise": scene.experiment.noise.text,
        "seed": scene.experiment.seed,
        "clients": len(sizes),
        "samples": len(scene.labels),
        "smallest_client": int(sizes.min()),
        "largest_client": int(sizes.max()),
        "classes": len(scene.images.classes),
        "truth_known": scene.images.truth_known,
        "wrong": scene.noise_ratio,
        "client_wrong": scene.client_ratios,
    }


def scene_table(scene: Scene) -> Table:
    """The same, for people."""
    facts = describe(scene)
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
