"""Rounds of federated learning with sites that are reached through Flower."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import RecordDict

from rofl.core.tensors import Tensors
from rofl.engines.flower.post import Presence, exchange
from rofl.engines.flower.roll import Roll
from rofl.engines.flower.wire import Order, pack_order, unpack_sums, unpack_update
from rofl.engines.rounds import Answer, RoundReport, check_update, choose_cohort, finish_round
from rofl.methods.base import Global, Method, Round, Update

_LAST_CALL = 60.0  # seconds in which a site that is away when all is over may come back for its list of suspects


@dataclass(frozen=True)
class Terms:
    """How long to wait."""

    gather: float = 600.0  # seconds for the sites to come, at first and where none is left
    answer: float = 3600.0  # seconds a site may take for its part of a round


@dataclass(frozen=True)
class Federation:
    """The sites of one run and the server."""

    roll: Roll
    method: Method
    cohort: int
    seed: int
    settings: str  # the experiment, as the sites get it
    terms: Terms
    kept: dict[int, int] = field(default_factory=dict)  # client -> round of the state that it is to go on from

    def rounds(self, glob: Global, first: int, last: int) -> Iterator[RoundReport]:
        """Rounds `first` to `last`, from a global state."""
        sizes = [self.roll.sites[client].samples for client in range(self.roll.clients)]
        for index in range(first, last + 1):
            started = time.perf_counter()
            cohort = choose_cohort(sizes, self.cohort, self.seed, index)
            answers = self._answers(glob, index, cohort)
            report = finish_round(self.method, glob, Round(index, self.seed), cohort, answers, started)
            glob = report.glob
            yield report

    def accuracy(self, glob: Global, index: int) -> float | None:
        """In per cent, of all samples that sites hold out; None where no site answers."""
        sums = self._sums("evaluate", pack_order(Order(self.settings, index), glob))
        right, tested = (sum(numbers.get(name, 0.0) for numbers, _ in sums.values()) for name in ("right", "tested"))
        return 100 * right / tested if tested else None

    def finish(self, glob: Global, index: int, history: str) -> dict[int, tuple[dict[str, float], Tensors]]:
        """Tell all sites that it is over; each judges its labels, and sends counts."""
        self.roll.wait_for_all(Order(self.settings, index), min(_LAST_CALL, self.terms.gather))
        return self._sums("query.finish", pack_order(Order(self.settings, index), glob, exact=True, history=history))

    def _answers(self, glob: Global, index: int, cohort: list[int]) -> Iterator[Answer]:
        """In the cohort's order, since sums depend on it."""
        blank, half = self.method.blank(glob), Order(self.settings).half
        here = self.roll.wait_for_one(cohort, Order(self.settings, index), self.terms.gather)
        letters = {client: Order(self.settings, index, self.kept.get(client, 0)) for client in cohort if client in here}
        replies = dict(self._ask("train", here, addressed(pack_order(Order(self.settings), glob), letters), index))
        for client in cohort:
            update, problem = read_answer(replies.pop(client, "it is not connected"), blank, half)
            if problem is None:
                self.kept[client] = index
            yield update, problem

    def _sums(self, kind: str, content: RecordDict) -> dict[int, tuple[dict[str, float], Tensors]]:
        """What those who are there count; those who cannot are left out."""
        here = self.roll.present()
        found = {}
        for client, answer in self._ask(kind, here, dict.fromkeys(here, content), 0):
            try:
                if isinstance(answer, str):
                    raise ValueError(answer)
                found[client] = unpack_sums(answer)
            except (ValueError, TypeError) as error:
                self.roll.tell(f"{self.roll.sites[client].name} is not counted: {error}.")
        return {client: found[client] for client in sorted(found)}

    def _ask(
        self, kind: str, here: Mapping[int, Presence], letters: Mapping[int, RecordDict], index: int
    ) -> Iterator[tuple[int, RecordDict | str]]:
        return exchange(self.roll.grid, kind, letters, here, self._look, self.terms.answer, str(index) if index else "")

    def _look(self) -> dict[int, Presence]:
        """Where everybody is, after a word with those who are new."""
        self.roll.greet(Order(self.settings))
        return self.roll.present()


def read_answer(answer: RecordDict | str, blank: Update, half: bool) -> Answer:
    """A client's update, or why it cannot be used."""
    if isinstance(answer, str):
        return blank, answer
    try:
        update = unpack_update(answer, half)
    except (ValueError, TypeError) as error:  # numpy's and torch's, for bytes that are no numbers of a known kind
        return blank, str(error)
    return update, check_update(update, blank)


def addressed(content: RecordDict, orders: Mapping[int, Order]) -> dict[int, RecordDict]:
    """One letter each around the same arrays."""
    return {client: RecordDict({**content, "order": pack_order(order)["order"]}) for client, order in orders.items()}
