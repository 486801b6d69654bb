"""The training loop, wherever the clients are: rounds go on, and every one of them is on disk."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from rofl.config.schema import Experiment
from rofl.core.tensors import check_like, digest
from rofl.core.version import __version__
from rofl.errors import Interrupted, UserError
from rofl.methods.base import ServerState
from rofl.simulation.executor import flatten_state
from rofl.simulation.network_spec import NetworkSpec
from rofl.simulation.rounds import RoundResult
from rofl.training.guard import BLAME, GuardEvent
from rofl.training.held_out import Evaluation
from rofl.training.privacy_budget import epsilon, privacy_spent
from rofl.training.records import FORMAT, LAST_ROUNDS, NoiseRecord, RoundRecord, RunSummary, Traffic
from rofl.training.rollback import KEPT, Rollback
from rofl.training.round_log import cut_round_log, format_record
from rofl.training.run_dir import BestModel, Checkpoint, RunDir
from rofl.training.run_monitor import RunMonitor, unresolved

Listener = Callable[[Experiment, RoundRecord], None]  # called with each round, once it is on disk


class Engine(Protocol):
    """Reaches the clients of a run: on this machine, or at their sites."""

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of each client's state."""

    def rounds(
        self,
        server_state: ServerState,
        first: int,
        last: int,
        cautious: bool = False,
        aside: frozenset[int] = frozenset(),
    ) -> Iterator[RoundResult]:
        """Yield rounds `first` to `last`, from a server state.

        Args:
            server_state: the state before round `first`.
            first: the first round, counted from 1.
            last: the last round.
            cautious: whether to use the cautious form of the method.
            aside: clients that are not asked.
        """

    def evaluate(self, server_state: ServerState, index: int) -> Evaluation:
        """Return what can be said of a server state: on the test set, and by held-out labels as given."""

    def overlap_evaluation(self) -> bool:
        """Return True if evaluation overlaps the next round; then call `evaluate` after that round."""

    def on_checkpoint(self) -> None:
        """Forget what only an earlier checkpoint needed."""


@dataclass(frozen=True)
class Trained:
    """The outcome of all rounds.

    Attributes:
        last: the server state after the last round, as it is evaluated.
        history: the records of all rounds.
        selected: "best" where the saved model is that of the best round, "last" where it is that of the last.
        selected_round: the round of the saved model.
        selected_state: its server state, as it is evaluated.
        stopped: why training stopped early, in one sentence; empty where it did not.
    """

    last: ServerState
    history: list[RoundRecord]
    selected: Literal["best", "last"]
    selected_round: int
    selected_state: ServerState
    stopped: str = ""


def load_or_init(folder: RunDir, experiment: Experiment, network: NetworkSpec) -> Checkpoint:
    """Return the newest checkpoint of a run, or its initial state.

    Args:
        folder: the run's.
        experiment: its settings.
        network: what to train.

    Raises:
        UserError: the checkpoint does not fit the settings.
    """
    if experiment.privacy.noise:
        epsilon(1, 1.0, experiment.privacy.delta)  # a missing accountant shows now, not after the last round
    fresh = Checkpoint(0, experiment.build_method().init(network.build()), {})
    start = folder.read_checkpoint() or fresh
    saved, expected = start.server_state, fresh.server_state
    problem = check_like(flatten_state(saved), flatten_state(expected)) or check_like(saved.kept, expected.kept)
    if problem:
        raise UserError(f"The checkpoint of {folder.path} does not fit its config.toml: {problem}.", "a new run")
    return start


@dataclass(frozen=True)
class Names:
    """What warnings call classes and clients."""

    classes: Sequence[str] = ()
    clients: Mapping[int, str] | None = None  # by their numbers where None


_NO_NAMES = Names()


def train(
    folder: RunDir,
    experiment: Experiment,
    start: Checkpoint,
    engine: Engine,
    listener: Listener | None,
    names: Names = _NO_NAMES,
) -> Trained:
    """Run all rounds that are left: metrics.jsonl grows, checkpoints are written.

    Args:
        folder: the run's.
        experiment: its settings.
        start: where it stands.
        engine: where the clients are.
        listener: called with every round.
        names: what warnings call classes and clients.

    Returns:
        The last and the selected server state, and the records of all rounds.

    Raises:
        Interrupted: on Ctrl-C, once the last finished round is on disk.
        UserError: no client's update could be used in the last round; that round is not on disk. Or rounds go wrong
            whoever is left out, or metrics.jsonl is damaged.
    """
    rollback = Rollback(experiment, names.clients) if experiment.bounds.rollback else None
    progress = _Progress(folder, experiment, start, RunMonitor(experiment, names.classes), rollback)
    try:
        progress.run(engine, lambda record: listener(experiment, record) if listener is not None else None)
    except KeyboardInterrupt:
        progress.save()
        raise Interrupted(progress.newest.index, folder.path) from None
    return progress.outcome()


class _Progress:
    """Where a run stands, in memory and on disk.

    Attributes:
        newest: the newest round that is done.
        best: the best round's model so far, as far as the newest checkpoint's history knows it.
        good: the models of the last good rounds, where rounds may be undone.
    """

    def __init__(
        self,
        folder: RunDir,
        experiment: Experiment,
        start: Checkpoint,
        monitor: RunMonitor,
        rollback: Rollback | None = None,
    ) -> None:
        self.folder, self.experiment, self.monitor, self.rollback = folder, experiment, monitor, rollback
        self.newest, self.saved = start, start.index
        self.history = folder.read_history()[: start.index]
        known = start.index - (start.pending_record is not None)
        self._log_sha = cut_round_log(folder.log_path, len(self.history), known, start.log_digest)
        # where its evaluation is still to come
        self.pending = start.pending_record if len(self.history) < start.index else None
        monitor.replay(self.history)
        self.good = self._good_on_disk() if rollback is not None else []
        self.best = self._best_on_disk() if self._keeps_best else None
        folder.prune_best(monitor.best_round)  # a round that is computed again may have left one

    @property
    def _keeps_best(self) -> bool:
        return self.experiment.select == "best" or self.experiment.guard == "act"

    def run(self, engine: Engine, notify: Callable[[RoundRecord], None]) -> None:
        """Run all rounds that are left, and start anew where the guard changes the method."""
        if self.pending:
            engine.overlap_evaluation()
        while (first := self.newest.index + 1) <= self._last_round(first - 1):
            switch = self.monitor.cautious_from
            stepped_back = self.monitor.restart_from is not None and switch == first
            server_state = self._best_state() if stepped_back else self.newest.server_state
            cautious = switch is not None and switch <= first
            aside = self._aside(first)
            for result in engine.rounds(server_state, first, self.experiment.rounds, cautious, aside):
                self._finish_round(result, engine, notify)
                if result.index >= self._last_round(result.index) or self._switches_after(result.index):
                    break
                if self.newest.server_state is not result.server_state or self._aside(result.index + 1) != aside:
                    break  # the round was undone, or others take part in the next one

    def _finish_round(self, result: RoundResult, engine: Engine, notify: Callable[[RoundRecord], None]) -> None:
        """Record a round, and the one before it where its evaluation was still to come."""
        if self.pending:
            evaluation = engine.evaluate(self.newest.server_state, self.newest.index)
            notify(self._write(self.pending.with_evaluation(evaluation), self.newest.server_state))
            self.pending = None
        index, experiment = result.index, self.experiment
        record, is_last = RoundRecord.from_result(result), index >= self._last_round(index)
        if is_last and record.nobody_left and not (self.rollback is not None and result.problem):
            self.save()
            reason = next(iter(record.dropped.values())).removesuffix(".")
            command = "rofl serve --resume" if self.folder.is_served else "rofl resume"
            raise UserError(
                f"In the last round, {index}, no client's update could be used: {reason}.",
                f"{command} {self.folder.path}, once that is mended",
            )
        due = index % experiment.evaluate_every == 0 or index > experiment.rounds - LAST_ROUNDS or is_last
        server_state = result.server_state
        may_overlap = due and not is_last and not self._switches_after(index) and self.rollback is None
        if may_overlap and engine.overlap_evaluation():
            self.pending = record
        else:
            evaluation = engine.evaluate(result.server_state, index) if due else Evaluation()
            problem = result.problem or evaluation.problem
            record, server_state = self._judge(record.with_evaluation(evaluation), result.server_state, problem)
            record = self._write(record, server_state)
        states = dict(engine.state_rounds)
        self.newest = Checkpoint(index, server_state, states, self.pending, self.best, self._log_sha.hexdigest())
        if index % experiment.checkpoint_every == 0 or is_last:
            self.save()
            engine.on_checkpoint()
        if not self.pending:
            notify(record)
        if self.rollback is not None and self.rollback.stop_reason:
            self.save()
            hint = "rofl federation log RUN, and a new run without the site that spoils it"
            raise UserError(self.rollback.stop_reason, hint)

    def _judge(self, record: RoundRecord, server_state: ServerState, problem: str) -> tuple[RoundRecord, ServerState]:
        """Return the record and the state after a round: those of an earlier one where the result is beyond reason.

        Args:
            record: of the round, with its evaluation.
            server_state: after the round.
            problem: why the sum over the clients, or their counts, could not be used.
        """
        if self.rollback is None:
            return record, server_state
        reason = self.rollback.judge(record, server_state, problem)
        if not reason:
            self.good = [*self.good, BestModel(record.round, server_state)][-KEPT:]
            return record, server_state
        # further back every other time: what was taken for good may not have been, unless the round changed nothing
        restored = self.good[-min(1 + self.rollback.spoilt // 2, len(self.good))]
        update = {"rolled_back": reason, "restored": restored.round}
        return record.model_copy(update=update), restored.server_state

    def _aside(self, index: int) -> frozenset[int]:
        return frozenset() if self.rollback is None else self.rollback.aside(index)

    def _good_on_disk(self) -> list[BestModel]:
        """Return the models that a run can go back to, after its decisions so far were made again."""
        assert self.rollback is not None
        for record in self.history:
            self.rollback.observe(record.model_copy(update={"warnings": []}))
        undone = {record.round for record in self.history if record.rolled_back}
        shapes = flatten_state(self.newest.server_state)
        found = [
            each
            for each in self.folder.read_good()
            if each.round <= self.newest.index
            and each.round not in undone
            and check_like(flatten_state(each.server_state), shapes) is None
        ]
        return found or [BestModel(self.newest.index, self.newest.server_state)]

    def save(self) -> None:
        """Write the newest checkpoint, if it is not on disk."""
        if self.newest.index > self.saved:
            if self.rollback is not None:
                self.folder.write_good(self.good)
            self.folder.write_checkpoint(self.newest)
            self.saved = self.newest.index

    def outcome(self) -> Trained:
        """Return the outcome, once all rounds are done."""
        selected: Literal["best", "last"] = "last"
        index, state = self.newest.index, self.newest.server_state
        if self.best is not None and self.experiment.select == "best":
            selected, index, state = "best", self.best.round, self.best.server_state
        last = self.newest.server_state.evaluated()
        return Trained(last, self.history, selected, index, state.evaluated(), self.monitor.stop_reason)

    def _write(self, record: RoundRecord, server_state: ServerState) -> RoundRecord:
        """Write the line of a round, and keep its model where it is the best."""
        record = self.monitor.observe(record)
        if self.rollback is not None:
            record = self.rollback.observe(record)
        self.folder.append_history(record)
        self._log_sha.update(format_record(record).encode())
        self.history.append(record)
        if self._keeps_best and self.monitor.best_round == record.round and not record.rolled_back:
            self.best = BestModel(record.round, server_state)
        return record

    def _last_round(self, index: int) -> int:
        """Return the run's last round, as it is known after round `index`.

        A stop that the evaluation of this very round asks for comes one round later: with more workers, the evaluation
        would not be there yet.
        """
        stop = self.monitor.stop_after
        return stop if stop is not None and stop <= index else self.experiment.rounds

    def _switches_after(self, index: int) -> bool:
        """Return whether the next round is the first of the method's cautious form."""
        return self.monitor.cautious_from == index + 1

    def _best_state(self) -> ServerState:
        assert self.best is not None  # the guard steps back to it only where there is one
        return self.best.server_state

    def _best_on_disk(self) -> BestModel | None:
        """Return the best round's model of a run that goes on."""
        index = self.monitor.best_round
        if index is None:
            return None
        start = self.newest
        return BestModel(index, start.server_state) if index == start.index else self.folder.read_best(index)


def training_summary(
    experiment: Experiment,
    trained: Trained,
    final_warnings: Sequence[GuardEvent],
    achieved_noise: float | None,
    note: str,
) -> RunSummary:
    """Return summary.json without the part of the audit.

    Args:
        experiment: the settings.
        trained: the outcome of all rounds.
        final_warnings: what the guard says about the saved model.
        achieved_noise: the share of wrong labels; None where it is not known.
        note: a sentence about the data, or "".
    """
    history = trained.history
    kept = [record for record in history if not record.rolled_back]
    warnings = unresolved([event for record in history for event in record.warnings], final_warnings)
    accuracies = [record.accuracy for record in kept if record.accuracy is not None]
    last = accuracies[-LAST_ROUNDS:]
    seconds = sum(record.seconds for record in history)
    total = sum((record.traffic for record in history), Traffic())
    aux = total.down_aux + total.up_aux
    return RunSummary(
        format=FORMAT,
        name=experiment.name,
        method=experiment.method_name,
        dataset=experiment.data.name,
        noise=NoiseRecord(**experiment.noise.model_dump(), achieved=achieved_noise),
        rounds=experiment.rounds,
        seed=experiment.seed,
        test_accuracy=sum(last) / len(last) if last else None,
        best_accuracy=max(accuracies, default=None),
        final_accuracy=accuracies[-1] if accuracies else None,
        seconds=round(seconds, 3),
        seconds_per_round=round(seconds / len(history), 4),
        bytes_up=total.up,
        bytes_down=total.down,
        bytes_centroids=aux,
        centroid_share=aux / max(total.down + total.up, 1),
        privacy=privacy_spent(experiment, history),
        note=note,
        dropped=sum(len(record.dropped) for record in history),
        versions={"rofl": __version__, "torch": torch.__version__},
        digest=digest(trained.last.model, trained.last.aux),
        selected=trained.selected,
        selected_round=trained.selected_round,
        selected_digest=digest(trained.selected_state.model, trained.selected_state.aux),
        model_accuracy=_accuracy_after(history, trained.selected_round),
        rounds_run=len(history),
        stopped=trained.stopped,
        warnings=[event for event in warnings if experiment.guard != "off" or event.sign in BLAME],
        rolled_back=[record.round for record in history if record.rolled_back],
    )


def _accuracy_after(history: Sequence[RoundRecord], index: int) -> float | None:
    """Return the accuracy of the model that a run had after a round: where it was undone, of the one taken again."""
    for record in reversed(history[:index]):
        if record.round == index and record.rolled_back:
            return _accuracy_after(history, record.restored or 0)
        if record.round == index:
            return record.accuracy
    return None
