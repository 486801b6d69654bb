"""A site that misbehaves: `python -m tests.federation.bad_site HOW` and then the arguments of `rofl join`.

HOW is what is wrong with its updates (see SPOILT), or `pause:ROUND:FILE`: it sleeps in that round until it is killed,
unless FILE is there, which it makes first; or `empty`: it has no sample; or `old` or `newer`: its protocol is another.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

from rofl.cli import main
from rofl.core.tensors import Tensors
from rofl.federation import protocol
from rofl.federation.site_client import SiteClient
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_records import SiteInfo
from rofl.methods.base import ServerState, Update


def _first(update: Update, value: torch.Tensor) -> Update:
    return replace(update, model={**update.model, next(iter(update.model)): value})


def _slow(update: Update) -> Update:
    time.sleep(600)
    return update


def _raise(update: Update) -> Update:
    raise RuntimeError("no such file: somebody.png")


SPOILT = {
    "nan": lambda update: _first(update, next(iter(update.model.values())) * float("nan")),
    "shape": lambda update: _first(update, torch.zeros(7)),
    "key": lambda update: replace(update, model={**update.model, "another": torch.zeros(1)}),
    "weight": lambda update: replace(update, weight=-1.0),
    "boost": lambda update: replace(update, model={name: 1000 * value for name, value in update.model.items()}),
    "slow": _slow,
    "raise": _raise,
}


def spoil(how: str) -> None:
    kind, _, rest = how.partition(":")
    number, _, file = rest.partition(":")
    train = SiteClient.train

    def spoilt(
        self: SiteClient, server_state: ServerState, index: int, state: Tensors, cautious: bool = False
    ) -> tuple[Update, Tensors]:
        if kind == "pause" and index == int(number) and not Path(file).exists():
            Path(file).touch()
            time.sleep(600)
        update, state = train(self, server_state, index, state, cautious)
        return SPOILT[kind](update) if kind in SPOILT else update, state

    SiteClient.train = spoilt  # type: ignore[method-assign]
    if kind == "empty":
        PartitionedData.describe = lambda self, request, context: SiteInfo(0, self.name, 0)  # type: ignore
    if kind == "newer":
        protocol.PROTOCOL += 1
    if kind == "old":  # 0.1 sends no version, and checks none
        fields = SiteInfo.fields
        SiteInfo.fields = lambda self: {k: v for k, v in fields(self).items() if k != "protocol"}  # type: ignore


if __name__ == "__main__":
    spoil(sys.argv.pop(1))
    main()
