"""Rollback: undo bad rounds, find the client that corrupted them, and exclude it for some rounds.

All decisions are a function of the round records, so a resumed run makes the same ones.

If the server sees single updates, it excludes the client whose update is the farthest outlier. With secure aggregation
it sees sums only, and finds the suspect by bisection: it leaves out half of the candidates, as long as enough clients
remain for masking; if the round is good without them, the suspect is among them. After a first drop of agreement the
round is repeated with all clients, since it may have been chance. The search starts immediately if honest clients
cannot have sent the sum, or if a client that was excluded before took part.
"""

from collections import deque
from collections.abc import Mapping

from rofl.config.schema import Experiment
from rofl.methods.base import ServerState
from rofl.training.guard import GuardEvent, describe_drop
from rofl.training.held_out import HeldOut
from rofl.training.records import RoundRecord

KEPT = 3  # good models that are kept for a rollback
_HIDDEN = 3  # least number of clients in a masked sum, so that no single client can be identified
_FUTILE = 2  # consecutive rounds without a usable update before a run stops


class Rollback:
    """Decides which rounds are undone and which clients are left out of the next ones.

    Args:
        experiment: the settings.
        names: the clients' names, for messages; their numbers if None.

    Attributes:
        bad: the number of consecutive bad rounds.
        discarded: how many of them produced a model that was discarded; the others had no usable sum.
        stop_reason: why the run cannot continue, in one sentence; empty while it can.
    """

    def __init__(self, experiment: Experiment, names: Mapping[int, str] | None = None) -> None:
        self.experiment, self.names = experiment, dict(names or {})
        self.bad = self.discarded = 0
        self.stop_reason = ""
        self._good = deque[HeldOut](maxlen=KEPT)  # evaluations of the last good rounds
        self._until: dict[int, int] = {}  # client -> the first round in which it takes part again
        self._times: dict[int, int] = {}  # client -> how often it was excluded
        self._trial: list[int] = []  # clients that are left out to test whether a round is good without them
        self._candidates: list[int] = []  # clients that may be the suspect
        self._clients = set(range(experiment.clients))  # including those that joined later
        self._futile = 0
        self._listens = True  # to the sites' objections
        self._reason = ""  # of the last bad round

    def aside(self, index: int) -> frozenset[int]:
        """Return the clients that are excluded from a round."""
        known = {client for client, until in self._until.items() if index < until}
        return frozenset(known | set(self._trial))

    def judge(self, record: RoundRecord, server_state: ServerState, problem: str) -> str:
        """Return why the result of a round is implausible, as the end of a sentence; empty if it is plausible.

        Args:
            record: the record of the round, with its evaluation.
            server_state: the state after the round.
            problem: the reason why the sum over the clients could not be used, if any.
        """
        if problem:
            return problem
        for group in (server_state.model, server_state.aux):
            for name, value in group.items():
                if not bool(value.isfinite().all()):
                    return f"{name!r} is not finite"
                if name.endswith("running_var") and bool((value < -1e-3).any()):
                    return f"{name!r} is negative"
        drop = "" if record.held_out is None else describe_drop(record.held_out, self._good)
        may_search = len(self._left(record.round)) > self._least or bool(self._trial)
        return drop or (_describe_objections(record) if self._listens and may_search else "")

    def observe(self, record: RoundRecord) -> RoundRecord:
        """Add the record of the next round; return it with the decisions among its warnings."""
        events = list[GuardEvent]()
        self._clients |= set(record.cohort)
        self._count_futile(record)
        if record.rolled_back:
            self._reason = record.rolled_back
            self.bad += 1
            self.discarded += not record.nobody_left
            events.append(self._undone(record))
            events += self._search(record)
        elif not record.nobody_left:  # without any reply, the trial says nothing and is repeated
            events += self._narrow(record.round)
            self.bad = self.discarded = 0
            if record.held_out is not None:
                self._good.append(record.held_out)
        return record.model_copy(update={"warnings": [*record.warnings, *events]}) if events else record

    def _narrow(self, index: int) -> list[GuardEvent]:
        """After a good round, narrow the candidates to the clients that were left out of it."""
        trial, self._trial = self._trial, []
        if len(trial) > 1:
            self._candidates = trial
            return [self._try(index)]
        self._candidates = []
        return [self._set_aside(trial[0], index, "the round was good without it")] if trial else []

    def _search(self, record: RoundRecord) -> list[GuardEvent]:
        """Decide which clients are left out of the next rounds, after a bad one."""
        tried, self._trial = self._trial, []
        self._candidates = [client for client in self._candidates if client not in tried]
        left = self._left(record.round + 1)
        if record.suspects and record.suspects[0] in left and len(left) > self._least:
            self._candidates = []
            unmasked = record.held_out is not None and not record.nobody_left
            why = "its update lay far from the others'" if unmasked else "it made a sum impossible to unmask"
            return [self._set_aside(record.suspects[0], record.round, why)]
        objected = record.rolled_back == _describe_objections(record)
        at_once = objected or record.nobody_left or any(client in self._times for client in left)
        if self.bad == 1 and not tried and not at_once:
            return []
        if not tried:
            self._candidates = sorted(left, key=lambda client: -self._times.get(client, 0))  # known suspects first
        if objected and (not self._candidates or len(left) <= self._least):
            return [self._stop_listening(record.round)]
        if not self._candidates or len(left) <= self._least:
            whoever = "whichever site was left out" if tried else "and there are too few sites to leave one out"
            self.stop_reason = f"{self.bad} rounds in a row were bad, {whoever}; the last one: {self._reason}."
            return []
        return [self._try(record.round)]

    def _stop_listening(self, index: int) -> GuardEvent:
        """Ignore the sites' votes from now on: they object whichever site is left out, so the data is the cause."""
        self._listens, self._candidates = False, []
        message = "Sites object to the model whichever of them is left out: from now on this undoes no round."
        return GuardEvent(sign="set aside", round=index, message=message, acted=True)

    def _try(self, index: int) -> GuardEvent:
        """Leave out half of the candidates in the next round, if enough clients remain; one known suspect alone."""
        most = len(self._left(index + 1)) - self._least
        known = self._candidates[0] in self._times
        count = 1 if known else max(1, min((len(self._candidates) + 1) // 2, most))
        if len(self._candidates) > 1:
            count = min(count, len(self._candidates) - 1)
        self._trial = self._candidates[:count]
        names = " and ".join(self._name(client) for client in self._trial)
        message = f"Round {index + 1} is tried without {names}."
        return GuardEvent(sign="set aside", round=index, message=message, acted=True)

    def _left(self, index: int) -> list[int]:
        """Return the clients that may take part in a round."""
        aside = self.aside(index)
        return [client for client in sorted(self._clients) if client not in aside]

    @property
    def _least(self) -> int:
        """The least number of clients of a round."""
        return _HIDDEN if self.experiment.transport == "fixed" else 1

    def _undone(self, record: RoundRecord) -> GuardEvent:
        back = f"the model of round {record.restored}" if record.restored else "the initial model"
        message = f"Round {record.round} is undone, and {back} taken again: {record.rolled_back}."
        return GuardEvent(sign="rolled back", round=record.round, message=message, acted=True)

    def _set_aside(self, client: int, index: int, why: str) -> GuardEvent:
        times = self._times[client] = self._times.get(client, 0) + 1
        rounds = self.experiment.bounds.aside * 2 ** (times - 1)
        self._until[client] = index + 1 + rounds
        message = f"For {rounds} rounds {self._name(client)} is set aside: {why}."
        return GuardEvent(sign="set aside", round=index, message=message, acted=True)

    def _count_futile(self, record: RoundRecord) -> None:
        """Stop after several consecutive rounds without a usable update, which no search can fix."""
        lost = record.nobody_left and not record.rolled_back
        self._futile = self._futile + 1 if lost else 0
        if self._futile >= _FUTILE:
            reason = next(iter(record.dropped.values())).removesuffix(".")
            self.stop_reason = f"In {self._futile} rounds in a row every site was left out; the last time: {reason}."

    def _name(self, client: int) -> str:
        return self.names.get(client, f"client {client}")


def _describe_objections(record: RoundRecord) -> str:
    """Return the objection of a majority of sites, as the end of a sentence; empty if there is no majority."""
    if record.voters < _HIDDEN or 2 * record.objections <= record.voters:
        return ""
    return f"{record.objections} of {record.voters} sites say that their own models are better by far"
