"""Rounds of the same clients in Flower's own simulation, on Ray; a program of its own, started by `baselines`.

Ray sends the app with every message, and what lies in it is made anew each time. So the data and the network, which a
user would not want to load for every message either, are kept by each of Ray's processes beside it.
"""

import json
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from benchmarks.speed.random_clients import METHOD, SAMPLES, SEED, WORKERS, samples, simulation, task
from rofl.core.tensors import Tensors, digest
from rofl.federation import MethodStrategy, SiteInfo, make_client_app
from rofl.federation.protocol import RoundRequest
from rofl.methods.base import ServerState, Update
from rofl.simulation.executor import ClientExecutor, flatten_state
from rofl.simulation.rounds import RoundResult


@cache
def shared_executor(width: float, clients: int) -> ClientExecutor:
    """Return the executor that all clients of a process share, the same as in our workers."""
    chosen = task(width)
    return ClientExecutor(chosen, samples(clients), flatten_state(METHOD.init(chosen.network.build())))


class RandomClient:
    """One client of random images, without a test set."""

    def __init__(self, client: int, executor: ClientExecutor) -> None:
        self.client, self.executor = client, executor

    def train(self, server_state: ServerState, index: int, state: Tensors) -> tuple[Update, Tensors]:
        """Train for one round."""
        self.executor.broadcast = flatten_state(server_state)
        return self.executor.train(index, self.client, state)


class RandomClients:
    """The data of all clients."""

    def __init__(self, width: float, clients: int) -> None:
        self.width, self.clients = width, clients

    def describe(self, request: RoundRequest, context: Context) -> SiteInfo:
        """Return the number and size of a client."""
        client = int(context.node_config["partition-id"])
        return SiteInfo(client, f"client {client}", SAMPLES)

    def client(self, request: RoundRequest, context: Context) -> RandomClient:
        """Return the client, with the executor of this process."""
        return RandomClient(int(context.node_config["partition-id"]), shared_executor(self.width, self.clients))


class InTurns(MethodStrategy):
    """Run a round of our own engine after each round on Ray, so that both are measured under the same load.

    Flower's own loop would ask all clients for an evaluation there; ours does not either.
    """

    def take_turns(self, ours: Iterator[RoundResult]) -> None:
        """Run a round of our engine."""
        self.ours, self.our_reports, self.first = ours, list[RoundResult](), 0.0

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no message: Ray has nothing to evaluate."""
        self.first = self.first or time.perf_counter()
        self.our_reports.append(next(self.ours))
        return []


def main() -> None:
    """Take width, clients and rounds by cohort as JSON; write seconds of each round, theirs and ours, and digests."""
    wanted = json.loads(sys.argv[1])
    width, clients = wanted["width"], wanted["clients"]
    found: dict[str, Any] = {"cohorts": []}
    server = ServerApp()

    @server.main()
    def rounds(grid: Grid, context: Context) -> None:
        for cohort, count in wanted["rounds"].items():
            begun = METHOD.init(task(width).network.build())
            strategy = InTurns(METHOD, begun, "", clients, int(cohort), SEED)
            with simulation(width, clients, int(cohort)) as ours:
                strategy.take_turns(ours.rounds(begun, 1, count))
                strategy.start(grid, ArrayRecord({}), num_rounds=count)
            sides = {"theirs": strategy.results, "ours": strategy.our_reports}
            found["cohorts"].append({side: told(reports) for side, reports in sides.items()})
            found.setdefault("start", strategy.first - started)

    started = time.perf_counter()
    run_simulation(
        server,
        make_client_app(RandomClients(width, clients)),
        num_supernodes=clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0}, "init_args": {"num_cpus": WORKERS}},
    )
    print(json.dumps(found))


def told(reports: list[RoundResult]) -> dict[str, Any]:
    """Return the seconds of each round, and the digest of the last server state."""
    server_state = reports[-1].server_state
    return {"seconds": [report.seconds for report in reports], "digest": digest(server_state.model, server_state.aux)}
