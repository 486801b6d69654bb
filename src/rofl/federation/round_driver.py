"""The server side of a round with sites: make the requests, and aggregate the replies.

Both ways of running a federation use it: `FlowerEngine`, the engine of `rofl serve`, which sends and receives messages
itself, and `MethodStrategy`, whose messages Flower's own loop sends.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import RecordDict

from rofl.errors import one_line
from rofl.federation.masking.secure_sum import SumResult
from rofl.federation.messaging import NodeConnection
from rofl.federation.protocol import RoundRequest, decode_update, encode_request, readdress
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import Claims, Method, RoundContext, ServerState, Update
from rofl.simulation.rounds import (
    SET_ASIDE,
    ClientReply,
    CohortTotal,
    RoundResult,
    aggregate_round,
    apply_total,
    check_update,
    sample_cohort,
)

_MAX_REASON = 300  # characters; the reason may contain a site's own text


@dataclass(frozen=True)
class RoundPlan:
    """A round that has started.

    Attributes:
        index: The round, counted from 1.
        server_state: The server state that the round starts from.
        cohort: The drawn clients, in the order in which their updates are added.
        nodes: The connections of the drawn clients that are connected.
        requests: The message to each connected client.
        started: The start time, by `time.perf_counter`.
        cautious: Whether the cautious form of the method is used.
        aside: Clients of the cohort that are not asked.
    """

    index: int
    server_state: ServerState
    cohort: list[int]
    nodes: Mapping[int, NodeConnection]
    requests: Mapping[int, RecordDict]
    started: float
    cautious: bool = False
    aside: frozenset[int] = frozenset()

    @property
    def asked(self) -> list[int]:
        """The clients of the cohort that are not set aside, connected or not."""
        return [client for client in self.cohort if client not in self.aside]


@dataclass(frozen=True)
class RoundDriver:
    """Makes the requests of a round and aggregates the replies.

    Attributes:
        registry: The sites of the run.
        method: The experiment's method.
        cohort: The number of clients that train in a round.
        seed: The experiment's seed.
        settings: The experiment as TOML, for the sites.
        wait: Seconds to wait for sites if too few of the cohort are connected.
        state_rounds: The round whose state each client starts from; `aggregate` and `aggregate_sum` update it.
        declared: The number of samples that each site declared when it first connected.
        quorum: The number of sites of a round that must be connected, and must answer for the model to change.
    """

    registry: SiteRegistry
    method: Method
    cohort: int
    seed: int
    settings: str
    wait: float = 600.0
    state_rounds: dict[int, int] = field(default_factory=dict)
    declared: dict[int, int] = field(default_factory=dict)
    quorum: int = 1

    def begin(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundPlan:
        """Draw the cohort of a round, wait until enough of its sites are connected, and make the requests.

        Args:
            server_state: The server state that the round starts from.
            index: The round, counted from 1.
            cautious: Whether to use the cautious form of the method.
            aside: Clients that are not asked.

        Raises:
            UserError: If too few sites are connected after `wait` seconds.
        """
        started = time.perf_counter()
        cohort = self._draw(index)
        asked = [client for client in cohort if client not in aside]
        nodes = self.registry.wait_for_any(asked, RoundRequest(self.settings, index), self.wait, self.quorum)
        for client, site in self.registry.sites.items():  # a site of the cohort may have come just now
            self.declared.setdefault(client, site.samples)
        state = encode_request(RoundRequest(self.settings), server_state)  # encoded once for all sites
        requests = {
            client: readdress(state, RoundRequest(self.settings, index, self.state_rounds.get(client, 0), "", cautious))
            for client in asked
            if client in nodes
        }
        return RoundPlan(index, server_state, cohort, nodes, requests, started, cautious, aside)

    def aggregate(self, plan: RoundPlan, replies: Mapping[int, RecordDict | str]) -> RoundResult:
        """Aggregate the replies and make the next server state.

        Adds the updates in the cohort's order, because a sum of floats depends on the order.

        Args:
            plan: The round.
            replies: Each client's reply, or the reason why there is none.

        Returns:
            The round's result. `dropped` lists clients whose reply is missing or unusable, with the reason.
        """
        ctx = RoundContext(plan.index, self.seed)
        answered = sum(isinstance(each, RecordDict) for each in replies.values())
        if answered < min(self.quorum, len(plan.asked)):
            replies = self._too_few(plan, answered, replies)
        updates = self._updates(plan, replies)
        method = self.method.cautious() if plan.cautious else self.method
        cohort = {client: float(self.declared.get(client, 0)) for client in plan.cohort}
        return aggregate_round(method, plan.server_state, ctx, cohort, updates, plan.started)

    def aggregate_sum(self, plan: RoundPlan, summed: SumResult) -> RoundResult:
        """Make the next server state from a masked sum of updates.

        Args:
            plan: The round.
            summed: The sum, or why there is none.
        """
        method = self.method.cautious() if plan.cautious else self.method
        zero, away = method.zero_update(plan.server_state), set(plan.cohort) - set(summed.arrived)
        asked = {client: each for client, each in summed.problems.items() if client in plan.nodes}
        dropped = {client: asked.get(client) or self.registry.why_absent(client) for client in away}
        dropped |= dict.fromkeys(plan.aside, SET_ASIDE)
        total, problem = zero, None
        if summed.content is not None:
            total, problem = parse_reply(summed.content, zero, bf16=False)
        if summed.content is not None and len(summed.arrived) < min(self.quorum, len(plan.asked)):
            problem = f"{len(summed.arrived)} sites answered, and {self.quorum} must"
        if summed.content is not None and problem is None and method.looks_at_updates:
            samples = [self.declared[client] for client in summed.arrived]
            claims = Claims(float(sum(samples)), len(samples), largest=max(samples) / sum(samples))
            problem = method.check_sums(total, plan.server_state, claims)
        problem = summed.problem or problem
        if problem is not None:
            problem = f"the sum over the sites cannot be used: {problem}"
            total, dropped = zero, {**dropped, **dict.fromkeys(summed.arrived, problem)}
        if summed.content is not None and problem is None:
            self.state_rounds.update(dict.fromkeys(summed.arrived, plan.index))
        ctx, order = (
            RoundContext(plan.index, self.seed),
            {client: dropped[client] for client in plan.cohort if client in dropped},
        )
        cohort_total = CohortTotal(plan.cohort, total, order, problem or "", list(summed.suspects))
        return apply_total(method, plan.server_state, ctx, cohort_total, plan.started)

    def _updates(self, plan: RoundPlan, replies: Mapping[int, RecordDict | str]) -> Iterator[ClientReply]:
        zero, bf16 = self.method.zero_update(plan.server_state), RoundRequest(self.settings).bf16
        for client in plan.cohort:
            missing = "it did not answer" if client in plan.nodes else self.registry.why_absent(client)
            missing = SET_ASIDE if client in plan.aside else missing
            update, problem = parse_reply(replies.get(client, missing), zero, bf16)
            if problem is None:
                self.state_rounds[client] = plan.index
            yield update, problem

    def _draw(self, index: int) -> list[int]:
        """Return the clients of a round; if all sites take part, sites that joined later do as well."""
        registry, members, most = self.registry, self.registry.members, self.cohort
        if self.cohort >= registry.clients:
            most = max(most, 2 * self.cohort - 1)  # sums of integers have no room for more
        sizes = [registry.samples(client) for client in members]
        return [members[each] for each in sample_cohort(sizes, min(most, len(members)), self.seed, index)]

    def _too_few(
        self, plan: RoundPlan, answered: int, replies: Mapping[int, RecordDict | str]
    ) -> dict[int, RecordDict | str]:
        """Return a reason in place of each update, because too few sites answered."""
        reason = f"{answered} sites answered, and {self.quorum} must"
        given = {client: replies[client] for client in replies if isinstance(replies[client], str)}
        return {client: given.get(client, reason) for client in plan.cohort if client in plan.nodes}


def parse_reply(reply: RecordDict | str, zero: Update, bf16: bool) -> ClientReply:
    """Return the update in a reply, and why it cannot be used.

    Args:
        reply: The content of the reply, or the reason why there is none.
        zero: An update of the right shape, which is returned in place of an unreadable one.
        bf16: Whether the settings ask for bfloat16.

    Returns:
        The update and None, or an update and the reason why it cannot be used.
    """
    if isinstance(reply, str):
        return zero, reply
    try:
        update = decode_update(reply, bf16)
    except (ValueError, TypeError) as error:  # numpy raises TypeError for an unknown dtype
        return zero, one_line(str(error)[:_MAX_REASON])
    problem = check_update(update, zero)
    return update, problem and one_line(problem[:_MAX_REASON])
