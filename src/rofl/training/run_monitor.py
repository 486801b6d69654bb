"""Monitors a run round by round: the best round, early stopping, and the guard's signs and reactions.

All decisions are a function of the round records, so a resumed run makes the same ones. The evaluation of a round may
overlap the next round; a decision that depends on it therefore takes effect one round later, in every engine and with
any number of workers.
"""

from collections import deque
from collections.abc import Sequence
from statistics import fmean

from rofl.config.schema import Experiment
from rofl.training import guard
from rofl.training.guard import WINDOW, GuardEvent, Sign
from rofl.training.held_out import HeldOut, HeldOutAverage
from rofl.training.records import RoundRecord

_MIN_ROUNDS = 5  # rounds before which an untrained model is no sign


class RunMonitor:
    """The best round so far, early stopping and the guard's warnings, from the records of a run.

    Args:
        experiment: the settings.
        classes: the names of the classes, for messages.

    Attributes:
        best_round: the round with the best agreement, averaged over `WINDOW` evaluations; None if none is known.
        stop_after: the last round, if training stops early.
        cautious_from: the first round of the method's cautious form; None if the method does not change.
        restart_from: the round whose model the first cautious round starts from; None for the newest.
        held_out: what held-out labels show.
    """

    def __init__(self, experiment: Experiment, classes: Sequence[str] = ()) -> None:
        method = experiment.build_method()
        self.experiment, self.classes = experiment, classes
        self.best_round: int | None = None
        self.stop_after: int | None = None
        self.cautious_from: int | None = None
        self.restart_from: int | None = None
        self.held_out = HeldOutAverage()
        self._may_act = experiment.guard == "act" and method.cautious() != method
        self._best = self._best_confident = 0.0  # of the averages so far
        self._improved = 0  # the last round in which the agreement rose
        self._recent = deque[HeldOut](maxlen=WINDOW)
        self._confident = deque[float](maxlen=WINDOW)
        self._present: dict[int, int] = {}  # class -> the last round in which it was predicted as often as it occurs
        self._reported = set[Sign]()
        self._gone = set[int]()  # classes that were reported

    @property
    def stop_reason(self) -> str:
        """The reason for early stopping, in one sentence; empty if training did not stop early."""
        if self.stop_after is None:
            return ""
        return (
            f"Stopped after {self.stop_after} of {self.experiment.rounds} rounds: agreement with held-out labels had "
            f"not risen for {self.experiment.patience} rounds."
        )

    def observe(self, record: RoundRecord) -> RoundRecord:
        """Process the record of the next round; return it with the guard's warnings."""
        if record.rolled_back:
            return record  # as if it had not been
        held_out = record.held_out
        if held_out is not None:
            self._recent.append(held_out)
            self.held_out.observe(held_out, record.round)
            self._follow_agreement(record.round)
        if "confident" in record.metrics:
            self._confident.append(record.metrics["confident"])
        if self.experiment.guard == "off":
            return record
        return record.model_copy(update={"warnings": self._judge(record)})

    def replay(self, history: Sequence[RoundRecord]) -> None:
        """Process the records of a resumed run."""
        for record in history:
            self.observe(record)

    def _follow_agreement(self, index: int) -> None:
        """Update the best round, and decide whether to stop."""
        agreement = self._agreement()
        if agreement is None:
            return
        if agreement > self._best:
            self._improved = index
        if agreement >= self._best:  # among equals the later one, which has seen more data
            self.best_round, self._best = index, agreement
        waited = index - max(self._improved, self.cautious_from or 0)
        patience = self.experiment.patience
        if patience and waited >= patience and self.stop_after is None and index + 1 < self.experiment.rounds:
            self.stop_after = index + 1

    def _agreement(self) -> float | None:
        """Return the mean agreement of the last evaluations; None until there are enough."""
        known = [each.agreement for each in self._recent if each.agreement is not None]
        return fmean(known) if len(known) == WINDOW else None

    def _judge(self, record: RoundRecord) -> list[GuardEvent]:
        """Return the guard's signs after a round; each is reported once per run."""
        events = [self._no_update(record), self._lost_confidence(record)]
        if record.held_out is not None and len(self._recent) == WINDOW:
            events += [self._falling(record.round), self._nothing_learnt(record.round), self._vanished(record.round)]
        return [event for event in events if event is not None]

    def _no_update(self, record: RoundRecord) -> GuardEvent | None:
        if not record.nobody_left or not self._first("no update"):
            return None
        message = f"In round {record.round} no client's update could be used; the model did not change."
        return GuardEvent(sign="no update", round=record.round, message=message)

    def _lost_confidence(self, record: RoundRecord) -> GuardEvent | None:
        if len(self._confident) < WINDOW or "confident" not in record.metrics:
            return None
        mean = fmean(self._confident)
        self._best_confident = max(self._best_confident, mean)
        if not guard.lost_confidence(mean, self._best_confident) or not self._first("lost confidence"):
            return None
        fall = f"from {100 * self._best_confident:.1f} to {100 * mean:.1f} %"
        message = f"By round {record.round} the share of samples whose labels the method trusts has fallen {fall}."
        return self._event("lost confidence", record.round, message)

    def _falling(self, index: int) -> GuardEvent | None:
        agreement = self._agreement()
        if agreement is None or not guard.falls_short(agreement, self._best, self._recent[-1].samples):
            return None
        if not self._first("falling agreement"):
            return None
        message = (
            f"The model agrees with {100 * agreement:.1f} % of the held-out labels in round {index}, after "
            f"{100 * self._best:.1f} % in round {self.best_round}: it learns wrong labels or its own mistakes."
        )
        return self._event("falling agreement", index, message)

    def _nothing_learnt(self, index: int) -> GuardEvent | None:
        agreement, newest = self._agreement(), self._recent[-1]
        if agreement is None or not self._is_settled(index):
            return None
        # the best agreement so far: a model that was better before has learnt something, and falls
        if not guard.is_chance(self._best, newest.majority, newest.samples) or not self._first("nothing learnt"):
            return None
        message = guard.describe_chance(agreement, newest.majority, index)
        return GuardEvent(sign="nothing learnt", round=index, message=message)

    def _vanished(self, index: int) -> GuardEvent | None:
        gone = guard.vanished(self._recent)
        # A model that still improves may not have learnt a class yet; one that it knew before is lost.
        expected = self._is_settled(index) and index - self._improved >= WINDOW
        new = [one for one in gone if one not in self._gone and (one in self._present or expected)]
        self._present |= dict.fromkeys(guard.present(self._recent), index)
        if not new:
            return None
        self._gone |= set(new)
        # Do not go back to a model that had already lost the class.
        there = self.best_round is not None and all(self._present.get(one, 0) >= self.best_round for one in new)
        message = guard.describe_vanished(new, self.classes, self._recent[-1], index)
        return self._event("vanished class", index, message, new, step_back=there)

    def _event(
        self, sign: Sign, index: int, message: str, classes: Sequence[int] = (), step_back: bool = True
    ) -> GuardEvent:
        """Return an event, after deciding on the reaction.

        Args:
            sign: the kind of sign.
            index: the round.
            message: the sentence for the user.
            classes: the vanished classes.
            step_back: whether training may restart from the best round's model.
        """
        acts = self._may_act and self.cautious_from is None and index + 2 <= self.experiment.rounds
        if acts:
            self.cautious_from, self.restart_from = index + 2, self.best_round if step_back else None
            start = f"from the model of round {self.restart_from} and " if self.restart_from else ""
            done = f"From round {index + 2} on it learns {start}from the labels as given, not from its own predictions."
        elif self.cautious_from is not None:
            done = f"It learns from the labels as given since round {self.cautious_from}."
        else:
            done = "The run continues unchanged."
        message = f"{message} {done}"
        return GuardEvent(sign=sign, round=index, message=message, classes=list(classes), acted=acts)

    def _first(self, sign: Sign) -> bool:
        """Return whether a sign occurs for the first time, and record it."""
        known = sign in self._reported
        self._reported.add(sign)
        return not known

    def _is_settled(self, index: int) -> bool:
        """Return whether enough rounds have passed to expect a trained model."""
        return index >= max(_MIN_ROUNDS, self.experiment.rounds // 3)


def unresolved(events: Sequence[GuardEvent], final: Sequence[GuardEvent]) -> list[GuardEvent]:
    """Return the warnings of a finished run: those of its rounds that still apply, and those of the saved model.

    A class that vanished and returned without intervention is no warning, nor is a model that had learnt nothing in an
    early round.

    Args:
        events: the warnings of the rounds.
        final: the warnings of the saved model.
    """
    passing = ("vanished class", "nothing learnt")
    return [*(event for event in events if event.acted or event.sign not in passing), *final]
