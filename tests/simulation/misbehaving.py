"""Clients that fail in every way a client can. Importable, since workers get their method by its module's name."""

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from rofl.core.tensors import Tensors
from rofl.data import ClientDataset
from rofl.methods import FedAvg, RoundContext, ServerState, Update
from rofl.models import Network


@dataclass(frozen=True)
class Moody(FedAvg):
    """Plain FedAvg, except for the clients that the script, a JSON file of client -> mood, names."""

    script: str = ""

    def client_update(
        self, net: Network, server_state: ServerState, client_state: Tensors, data: ClientDataset, ctx: RoundContext
    ) -> tuple[Update, Tensors]:
        mood = json.loads(Path(self.script).read_text()).get(str(ctx.client))
        marker = Path(f"{self.script}.{ctx.client}.{ctx.index}")
        if mood == "raises":
            raise LookupError(f"client {ctx.client} lost its glasses")
        if mood == "dies" or (mood == "dies once" and not marker.exists()):
            marker.touch()
            os._exit(1)
        if mood == "waits":
            wait_for(marker)
        update, _ = super().client_update(net, server_state, client_state, data, ctx)
        name = next(iter(update.model))
        wrong = {
            "nan": {**update.model, name: torch.full_like(update.model[name], float("nan"))},
            "infinite": {**update.model, name: torch.full_like(update.model[name], float("inf"))},
            "wrong shape": {**update.model, name: torch.zeros(3)},
            "lacks a name": {key: value for key, value in update.model.items() if key != name},
            "a name too many": {**update.model, "intruder": torch.zeros(1)},
        }
        if mood in wrong:
            return replace(update, model=wrong[mood]), {"memory": torch.tensor([13.0])}
        if mood in ("no weight", "negative weight", "nan weight", "infinite weight"):
            weight = {"no": 0.0, "negative": -1.0, "nan": float("nan"), "infinite": float("inf")}[mood.split()[0]]
            return replace(update, weight=weight), {"memory": torch.tensor([13.0])}
        return update, {"memory": torch.tensor([float(ctx.index)])}


def wait_for(path: Path, patience: float = 120) -> None:
    """Until the file is there; then a moment longer, in which others may do too much."""
    deadline = time.monotonic() + patience
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
