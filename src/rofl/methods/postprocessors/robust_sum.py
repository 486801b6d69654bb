"""Robust aggregation for any method: median, trimmed mean or Krum instead of the sum of a round's updates."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import ClassVar

import torch

from rofl.core.robust import RobustKind, expected_bad, krum, median, trimmed_mean
from rofl.core.tensors import Tensors
from rofl.methods.base import BOUNDS, Update
from rofl.methods.postprocessors.postprocessor import Postprocessor


@dataclass(frozen=True)
class RobustSum(Postprocessor):
    """Robust aggregation of the single updates, which the server must see; returns an update in the form of their sum.

    With "median" and "trimmed", all clients have equal weight, whatever their number of samples. "krum" leaves out the
    clients that are far from the others, and sums the remaining updates.
    """

    kind: RobustKind
    bad_share: float = 0.2  # of the clients that may be bad

    looks_at_updates: ClassVar[bool] = True

    def combine(self, updates: Sequence[Update]) -> Update | None:
        """Return the robust aggregate in the form of the sum."""
        if len(updates) < 2 or self.kind == "none":
            return None
        bad = expected_bad(len(updates), self.bad_share)
        changes = [{name: value / each.weight for name, value in each.model.items()} for each in updates]
        total = reduce(add, updates)
        if self.kind == "krum":
            chosen = reduce(add, [updates[client] for client in krum(changes, bad)])
            counts = {name: value for name, value in total.aux.items() if name.startswith(BOUNDS)}
            return Update(chosen.model, chosen.weight, {**chosen.aux, **counts}, chosen.metrics)
        model = {name: value * total.weight for name, value in self._middle(changes, bad).items()}
        names = [name for name in total.aux if not name.startswith(BOUNDS)]
        aux = self._middle([{name: each.aux[name] for name in names} for each in updates], bad)
        scaled = {name: value * len(updates) for name, value in aux.items()}
        return Update(model, total.weight, {**total.aux, **scaled}, total.metrics)

    def _middle(self, values: Sequence[Tensors], bad: int) -> Tensors:
        with torch.no_grad():
            return median(values) if self.kind == "median" else trimmed_mean(values, bad)
