"""The rounds of a run: each is evaluated, recorded and saved, or undone if its result is implausible."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rofl.config.schema import Experiment
from rofl.core.tensors import check_like
from rofl.errors import UserError
from rofl.methods.base import ServerState
from rofl.simulation.executor import flatten_state
from rofl.simulation.rounds import RoundResult
from rofl.training.checkpoint_files import BestModel, Checkpoint
from rofl.training.engine_protocol import Engine
from rofl.training.held_out import Evaluation
from rofl.training.records import LAST_ROUNDS, RoundRecord
from rofl.training.rollback import KEPT, Rollback
from rofl.training.run_dir import RunDir, cut_round_log, format_record
from rofl.training.run_monitor import RunMonitor


@dataclass(frozen=True)
class Trained:
    """The outcome of all rounds.

    Attributes:
        last: the server state after the last round, in the form for evaluation.
        history: the records of all rounds.
        selected: "best" or "last": the round whose model is saved.
        selected_round: the round of the saved model.
        selected_state: its server state, in the form for evaluation.
        stopped: why training stopped early, in one sentence; empty if it did not.
    """

    last: ServerState
    history: list[RoundRecord]
    selected: Literal["best", "last"]
    selected_round: int
    selected_state: ServerState
    stopped: str = ""


class RunProgress:
    """The progress of a run, in memory and on disk.

    Args:
        folder: the run directory.
        experiment: its settings.
        start: its newest checkpoint.
        monitor: watches the rounds, and may stop the run or make the method cautious.
        rollback: decides which rounds are undone; None for no rollback.

    Attributes:
        newest: the newest finished round.
        best: the best round's model so far, by the history of the newest checkpoint.
        good: the models of the last good rounds, for a rollback.
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
        self.method = experiment.build_method()
        self.newest, self.saved = start, start.index
        self.history = folder.read_history()[: start.index]
        known = start.index - (start.pending_record is not None)
        self._log_sha = cut_round_log(folder.log_path, len(self.history), known, start.log_digest)
        # if its evaluation is pending
        self.pending = start.pending_record if len(self.history) < start.index else None
        monitor.replay(self.history)
        self.good = self._good_on_disk() if rollback is not None else []
        self.best = self._best_on_disk() if self._keeps_best else None
        folder.checkpoints.prune_best(monitor.best_round)  # an earlier attempt at this round may have left one

    @property
    def _keeps_best(self) -> bool:
        return self.experiment.select == "best" or self.experiment.guard == "act"

    def run(self, engine: Engine, notify: Callable[[RoundRecord], None]) -> None:
        """Run all remaining rounds."""
        if self.pending:
            engine.overlap_evaluation()
        while self.newest.index < self._last_round(self.newest.index):
            index, switch = self.newest.index + 1, self.monitor.cautious_from
            steps_back = self.monitor.restart_from is not None and switch == index
            server_state = self._best_state() if steps_back else self.newest.server_state
            cautious = switch is not None and switch <= index
            estimate = self.monitor.held_out.before(index)
            if estimate is not None:
                server_state = self.method.with_held_out(server_state, estimate)
            aside = frozenset[int]() if self.rollback is None else self.rollback.aside(index)
            self._finish_round(engine.run_round(server_state, index, cautious, aside), engine, notify)

    def _finish_round(self, result: RoundResult, engine: Engine, notify: Callable[[RoundRecord], None]) -> None:
        """Record a round, and the one before it if its evaluation was pending."""
        if self.pending:
            evaluation = engine.evaluate(self.newest.server_state, self.newest.index)
            notify(self._write(self.pending.with_evaluation(evaluation), self.newest.server_state))
            self.pending = None
        index, experiment = result.index, self.experiment
        record, is_last = RoundRecord.from_result(result), index >= self._last_round(index)
        if is_last and record.nobody_left and not (self.rollback is not None and result.problem):
            self.save()
            reasons = dict.fromkeys(reason.removesuffix(".") for reason in record.dropped.values())
            command = "rofl serve --resume" if self.folder.is_served else "rofl resume"
            raise UserError(
                f"In the last round, {index}, no client's update could be used: {'; '.join(reasons)}.",
                f"{command} {self.folder.path}, after fixing that",
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
        """Return the record and the state after a round; if its result is implausible, an earlier state.

        Args:
            record: the record of the round, with its evaluation.
            server_state: the state after the round.
            problem: the reason why the clients' sum or counts could not be used.
        """
        if self.rollback is None:
            return record, server_state
        reason = self.rollback.judge(record, server_state, problem)
        if not reason:
            self.good = [*self.good, BestModel(record.round, server_state)][-KEPT:]
            return record, server_state
        # every second discarded model goes one step further back, because a round judged good may have been bad
        restored = self.good[-min(1 + self.rollback.discarded // 2, len(self.good))]
        update = {"rolled_back": reason, "restored": restored.round}
        return record.model_copy(update=update), restored.server_state

    def _good_on_disk(self) -> list[BestModel]:
        """Return the models for a rollback of a resumed run, after its earlier decisions were replayed."""
        assert self.rollback is not None
        for record in self.history:
            self.rollback.observe(record.model_copy(update={"warnings": []}))
        undone = {record.round for record in self.history if record.rolled_back}
        shapes = flatten_state(self.newest.server_state)
        found = [
            each
            for each in self.folder.checkpoints.read_good()
            if each.round <= self.newest.index
            and each.round not in undone
            and check_like(flatten_state(each.server_state), shapes) is None
        ]
        return found or [BestModel(self.newest.index, self.newest.server_state)]

    def save(self) -> None:
        """Write the newest checkpoint, unless it is on disk already."""
        if self.newest.index > self.saved:
            if self.rollback is not None:
                self.folder.checkpoints.write_good(self.good)
            self.folder.checkpoints.write(self.newest)
            self.saved = self.newest.index

    def outcome(self) -> Trained:
        """Return the outcome after the last round."""
        selected: Literal["best", "last"] = "last"
        index, state = self.newest.index, self.newest.server_state
        if self.best is not None and self.experiment.select == "best":
            selected, index, state = "best", self.best.round, self.best.server_state
        last = self.newest.server_state.evaluated()
        return Trained(last, self.history, selected, index, state.evaluated(), self.monitor.stop_reason)

    def _write(self, record: RoundRecord, server_state: ServerState) -> RoundRecord:
        """Append the record of a round, and keep its model if it is the best."""
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
        """Return the run's last round, as known after round `index`.

        A stop that the evaluation of this round triggers takes effect one round later: with more workers, the
        evaluation would not be available yet.
        """
        stop = self.monitor.stop_after
        return stop if stop is not None and stop <= index else self.experiment.rounds

    def _switches_after(self, index: int) -> bool:
        """Return whether the next round is the first of the method's cautious form."""
        return self.monitor.cautious_from == index + 1

    def _best_state(self) -> ServerState:
        assert self.best is not None  # the guard steps back to it only if there is one
        return self.best.server_state

    def _best_on_disk(self) -> BestModel | None:
        """Return the best round's model of a resumed run."""
        index = self.monitor.best_round
        if index is None:
            return None
        if index == self.newest.index:
            return BestModel(index, self.newest.server_state)
        return self.folder.checkpoints.read_best(index)
