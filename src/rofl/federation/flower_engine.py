"""Rounds of federated learning with sites that are reached through Flower."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import RecordDict

from rofl.core.tensors import Tensors
from rofl.federation.messaging import NodeConnection, send_and_receive
from rofl.federation.protocol import RoundRequest, decode_sums, decode_update, encode_request
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import Method, RoundContext, ServerState, Update
from rofl.simulation.rounds import ClientReply, RoundResult, aggregate_round, check_update, sample_cohort

_LAST_CALL = 60.0  # seconds in which a site that is away when all is over may come back for its list of suspects


@dataclass(frozen=True)
class Timeouts:
    """How long to wait."""

    gather: float = 600.0  # seconds for the sites to come, at first and where none is left
    answer: float = 3600.0  # seconds a site may take for its part of a round


@dataclass(frozen=True)
class FlowerEngine:
    """The sites of one run and the server."""

    roll: SiteRegistry
    method: Method
    cohort: int
    seed: int
    settings: str  # the experiment, as the sites get it
    terms: Timeouts
    kept: dict[int, int] = field(default_factory=dict)  # client -> round of the state that it is to go on from

    def rounds(self, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
        """Rounds `first` to `last`, from a global state."""
        sizes = [self.roll.sites[client].samples for client in range(self.roll.clients)]
        for index in range(first, last + 1):
            started = time.perf_counter()
            cohort = sample_cohort(sizes, self.cohort, self.seed, index)
            answers = self._answers(server_state, index, cohort)
            report = aggregate_round(
                self.method, server_state, RoundContext(index, self.seed), cohort, answers, started
            )
            server_state = report.server_state
            yield report

    def accuracy(self, server_state: ServerState, index: int) -> float | None:
        """In per cent, of all samples that sites hold out; None where no site answers."""
        sums = self._sums("evaluate", encode_request(RoundRequest(self.settings, index), server_state))
        right, tested = (sum(numbers.get(name, 0.0) for numbers, _ in sums.values()) for name in ("right", "tested"))
        return 100 * right / tested if tested else None

    def finish(
        self, server_state: ServerState, index: int, history: str
    ) -> dict[int, tuple[dict[str, float], Tensors]]:
        """Tell all sites that it is over; each judges its labels, and sends counts."""
        self.roll.wait_for_all(RoundRequest(self.settings, index), min(_LAST_CALL, self.terms.gather))
        return self._sums(
            "query.finish",
            encode_request(RoundRequest(self.settings, index), server_state, exact=True, history=history),
        )

    def _answers(self, server_state: ServerState, index: int, cohort: list[int]) -> Iterator[ClientReply]:
        """In the cohort's order, since sums depend on it."""
        zero, half = self.method.zero_update(server_state), RoundRequest(self.settings).half
        here = self.roll.wait_for_one(cohort, RoundRequest(self.settings, index), self.terms.gather)
        letters = {
            client: RoundRequest(self.settings, index, self.kept.get(client, 0)) for client in cohort if client in here
        }
        replies = dict(
            self._ask(
                "train",
                here,
                per_site_requests(encode_request(RoundRequest(self.settings), server_state), letters),
                index,
            )
        )
        for client in cohort:
            update, problem = parse_reply(replies.pop(client, "it is not connected"), zero, half)
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
                found[client] = decode_sums(answer)
            except (ValueError, TypeError) as error:
                self.roll.tell(f"{self.roll.sites[client].name} is not counted: {error}.")
        return {client: found[client] for client in sorted(found)}

    def _ask(
        self, kind: str, here: Mapping[int, NodeConnection], letters: Mapping[int, RecordDict], index: int
    ) -> Iterator[tuple[int, RecordDict | str]]:
        return send_and_receive(
            self.roll.grid, kind, letters, here, self._look, self.terms.answer, str(index) if index else ""
        )

    def _look(self) -> dict[int, NodeConnection]:
        """Where everybody is, after a word with those who are new."""
        self.roll.greet(RoundRequest(self.settings))
        return self.roll.present()


def parse_reply(answer: RecordDict | str, zero: Update, half: bool) -> ClientReply:
    """A client's update, or why it cannot be used."""
    if isinstance(answer, str):
        return zero, answer
    try:
        update = decode_update(answer, half)
    except (ValueError, TypeError) as error:  # numpy's and torch's, for bytes that are no numbers of a known kind
        return zero, str(error)
    return update, check_update(update, zero)


def per_site_requests(content: RecordDict, orders: Mapping[int, RoundRequest]) -> dict[int, RecordDict]:
    """One letter each around the same arrays."""
    return {
        client: RecordDict({**content, "order": encode_request(order)["order"]}) for client, order in orders.items()
    }
