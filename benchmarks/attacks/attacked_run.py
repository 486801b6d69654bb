"""A federation of five in this process whose last site is bad: the real coordinator, sites, masks and training loop."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from tests.federation.in_memory_grid import InMemoryGrid

import rofl
from benchmarks.attacks.site_attacks import ATTACKS, FLIPPED, with_counts
from rofl.config.schema import Experiment
from rofl.core.fixed_point import NUMBER_BITS, TENSOR_BITS, decode
from rofl.core.tensors import Tensors
from rofl.errors import UserError
from rofl.federation import FlowerEngine, make_client_app
from rofl.federation.federated_training import ServerEngine
from rofl.federation.masking.site_masks import SiteMasks
from rofl.federation.protocol import RoundRequest
from rofl.federation.round_driver import RoundDriver
from rofl.federation.site_client import SiteClient
from rofl.federation.site_data import PartitionedData
from rofl.federation.site_evaluation import SiteEvaluation
from rofl.federation.site_gate import SiteGate
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import ServerState, Update
from rofl.simulation import rounds
from rofl.training.inputs import load_inputs
from rofl.training.loop import load_or_init, train
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir

SITES, BAD = 5, 4
LAST = 3  # rounds over which the accuracy is averaged
_DATA = PartitionedData()  # keeps the clients of the newest settings


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        accuracy: Mean over the last rounds that were not undone, in per cent.
        undone: Rounds that were undone.
        left_out: Rounds in which the bad site was left out or set aside.
        blamed: Rounds in which an honest site was set aside.
        stopped: Why the run stopped, if it did.
    """

    accuracy: float
    undone: int
    left_out: int
    blamed: int
    stopped: str = ""


def attack_settings(masks: bool, bounds: bool = True, **changes: Any) -> Experiment:
    """Return the settings: digits, a tenth of the labels wrong, five sites that hold out a fifth, ten rounds."""
    settings: dict[str, Any] = {
        "clients": SITES,
        "cohort": SITES,
        "rounds": 10,
        "noise__ratio": 0.1,
        "data__validation_share": 0.2,
    }
    settings |= {"model__width": 0.5, "method__epochs": 4, "method__batch": 16, "method__t_pl": 8}
    settings |= {"bounds__on": bounds, "bounds__rollback": bounds, "transport": "fixed" if masks else "full"}
    return rofl.preset("digits", method="rofl", **{**settings, **changes})


def run_attacked(
    chosen: Experiment, attack: str | None, masks: bool, folder: Path, without_bad: bool = False
) -> Outcome:
    """Run all rounds with a bad site.

    Args:
        chosen: The settings.
        attack: A key of `ATTACKS`; None for an honest site.
        masks: Whether sums are masked.
        folder: A new run folder.
        without_bad: Leave the last site out of all rounds, for comparison.
    """
    run_dir = RunDir(folder)
    run_dir.write_experiment(chosen)
    with attack_from(attack, BAD):
        engine = ServerEngine(_Excluding(*_engine(chosen, masks), without_bad), 10, None)
        stopped = ""
        try:
            train(run_dir, chosen, load_or_init(run_dir, chosen, load_inputs(chosen, None)[1]), engine, None)
        except UserError as error:
            stopped = error.sentence
    return _outcome(run_dir.read_history(), stopped)


class _Excluding(FlowerEngine):
    """An engine that may leave out the last site altogether."""

    def __init__(self, driver: RoundDriver, masks: bool, without_bad: bool) -> None:
        super().__init__(driver, masks=masks)
        object.__setattr__(self, "_always", frozenset({BAD}) if without_bad else frozenset())

    def run_round(self, server_state: Any, index: int, cautious: bool = False, aside: Any = frozenset()) -> Any:
        return super().run_round(server_state, index, cautious, aside | self._always)  # type: ignore[attr-defined]


def _engine(chosen: Experiment, masks: bool) -> tuple[RoundDriver, bool]:
    own = {client: SiteMasks(client) for client in range(chosen.clients)}
    app = make_client_app(_DATA, lambda context: SiteGate(masks=own[int(context.node_config["partition-id"])]))
    registry = SiteRegistry(InMemoryGrid(app, [{"partition-id": client} for client in own]), chosen.clients)
    registry.wait_for_sites(RoundRequest(chosen.toml()), 5)
    return RoundDriver(registry, chosen.build_method(), chosen.cohort, chosen.seed, chosen.toml()), masks


@contextmanager
def attack_from(attack: str | None, client: int | None, first: int = 1) -> Iterator[None]:
    """Let a client attack inside the block; it never objects to a model.

    Args:
        attack: A key of `ATTACKS`; None for an honest site.
        client: Its number; None for every client of this process.
        first: The first round of the attack.
    """
    honest, judge = SiteClient.train, SiteClient.evaluate

    def attacking(
        self: SiteClient, server_state: ServerState, index: int, state: Tensors, cautious: bool = False
    ) -> tuple[Update, Tensors]:
        if attack is None or index < first or self.client != (self.client if client is None else client):
            return honest(self, server_state, index, state, cautious)
        labels = self.executor.labels
        if attack == FLIPPED:
            self.executor.labels = 9 - labels
        update, state = honest(self, server_state, index, state, cautious)
        self.executor.labels = labels
        return _change(update, attack, server_state, index), state

    def content(self: SiteClient, server_state: ServerState, index: int = 0) -> SiteEvaluation:
        counts = judge(self, server_state, index)
        bad = attack is not None and self.client == (self.client if client is None else client)
        return replace(counts, objects=False) if bad else counts

    SiteClient.train, SiteClient.evaluate = attacking, content  # type: ignore[method-assign]
    try:
        yield
    finally:
        SiteClient.train, SiteClient.evaluate = honest, judge  # type: ignore[method-assign]


def _change(update: Update, attack: str, server_state: ServerState, index: int) -> Update:
    """Return what the bad site sends, in the form in which updates travel."""
    fixed = not next(iter(update.model.values())).is_floating_point()
    opened = Update(decode(update.model), update.weight, decode(update.aux), update.metrics) if fixed else update
    sent = with_counts(ATTACKS[attack](opened, server_state, index))
    if not fixed:
        return sent
    step = 1 << NUMBER_BITS
    return Update(_integers(sent.model), round(sent.weight * step) / step, _integers(sent.aux), sent.metrics)


def _integers(tensors: Tensors) -> Tensors:
    """Return tensors in fixed point, without the checks of an honest program: what is too large wraps around."""
    scaled = {name: (value.double() * (1 << TENSOR_BITS)).nan_to_num(nan=2.0**61) for name, value in tensors.items()}
    return {name: torch.fmod(value, 2.0**62).round().long() for name, value in scaled.items()}


def _outcome(history: list[RoundRecord], stopped: str) -> Outcome:
    kept = [record.accuracy for record in history if not record.rolled_back and record.accuracy is not None]
    aside = [{int(client) for client, why in each.dropped.items() if why == rounds.SET_ASIDE} for each in history]
    return Outcome(
        accuracy=fmean(kept[-LAST:]) if kept else 0.0,
        undone=sum(bool(record.rolled_back) for record in history),
        left_out=sum(str(BAD) in record.dropped for record in history),
        blamed=sum(bool(clients - {BAD}) for clients in aside),
        stopped=stopped,
    )
