"""The coordinator: lets the sites in, runs the rounds, and writes a run folder like that of a local run."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
import torch

from rofl.audit import transition
from rofl.audit.result import AuditMetrics, NoiseEstimate
from rofl.config.overrides import read_toml
from rofl.config.schema import Experiment
from rofl.data import atomic
from rofl.data.federated import FederatedDataset
from rofl.errors import UserError
from rofl.federation.credentials import ServerCredentials
from rofl.federation.flower_engine import FlowerEngine, Timeouts
from rofl.federation.flower_internal.control import Control
from rofl.federation.flower_internal.processes import free_port, new_secret, start_superlink
from rofl.federation.flower_internal.runtime import TaskClient, server_grid
from rofl.federation.gateway import Gateway
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.site_registry import SiteInfo, SiteRegistry
from rofl.methods.base import ServerState
from rofl.simulation.client import NetworkSpec
from rofl.simulation.engine import Simulation
from rofl.simulation.rounds import RoundResult
from rofl.training.inputs import accuracy, load_inputs
from rofl.training.loop import Listener, load_or_init, train, training_summary
from rofl.training.records import RoundRecord, SiteRecord
from rofl.training.run import Run, start_simulation
from rofl.training.run_dir import RunDir

_HOLD = 15.0  # seconds that a site's question for work is held; after an empty answer Flower sleeps for 3
_LARGEST = 2**26  # bytes of one request; Flower sends arrays in pieces of 5 MB

OnMessage = Callable[[str], None]


@dataclass(frozen=True)
class ServerConfig:
    """Where and how the sites come in, and how long they are waited for."""

    address: str  # host and port
    clients: int
    credentials: str = ""  # the folder `server` of rofl serve --init; "": none, on this machine only
    wait: float = 600.0  # seconds for the sites to come
    timeout: float = 3600.0  # seconds a site may take for its part of a round
    settings: dict[str, Any] = field(default_factory=dict)  # with dotted keys, where the sites' data leads to the rest

    def write(self, folder: Path) -> None:
        """Keep it, for a resume."""
        atomic.atomic_write(folder / "serve.toml", tomli_w.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "ServerConfig":
        """The door that the folder's coordinator had."""
        if not (folder / "serve.toml").is_file():
            raise UserError(
                f"{folder} is no folder of rofl serve: it has no serve.toml.", "rofl resume, for a local run"
            )
        try:
            return cls(**read_toml(folder / "serve.toml"))
        except TypeError as error:
            raise UserError(f"{folder / 'serve.toml'} is damaged ({error}).", "a new run") from error


def serve(
    folder: RunDir,
    door: ServerConfig,
    chosen: Experiment | None,
    *,
    tell: OnMessage,
    begin: Callable[[Experiment], None] = lambda experiment: None,
    listener: Listener | None = None,
    data_dir: Path | None = None,
) -> Run:
    """Coordinate a run, from the beginning or from where the folder's checkpoint stands.

    Args:
        folder: the run's; it holds its settings already where it is resumed.
        door: where the sites come in.
        chosen: what to run; None where the sites have data of their own, and settings follow from it.
        tell: is given sentences for people.
        begin: is told what is run, when all sites are there.
        listener: is told of every round.
        data_dir: where data sets lie.
    """
    with _opened(folder.path / "flower", door, tell) as roll:
        door.write(folder.path)
        if chosen is not None:
            folder.write_experiment(chosen)
        settings = chosen.toml() if chosen is not None else ""
        sites = roll.gather(RoundRequest(settings), door.wait)
        agreed = chosen if chosen is not None else negotiate(sites, door.settings)
        if agreed.clients != door.clients:
            raise UserError(f"The settings are for {agreed.clients} clients, and {door.clients} sites are asked for.")
        if chosen is None:
            tell(f"Classes: {', '.join(agreed.data.classes)}.")
            folder.write_experiment(agreed)
        begin(agreed)
        return _rounds(folder, agreed, roll, sites, door, listener, data_dir, tell)


def _rounds(
    folder: RunDir,
    agreed: Experiment,
    roll: SiteRegistry,
    sites: list[SiteInfo],
    door: ServerConfig,
    listener: Listener | None,
    data_dir: Path | None,
    tell: OnMessage,
) -> Run:
    with ExitStack() as stack:
        federated, network = (None, _network(agreed)) if agreed.data.at_sites else load_inputs(agreed, data_dir)
        start = load_or_init(folder, agreed, network)
        terms = Timeouts(door.wait, door.timeout)
        method = agreed.build_method()
        federation = FlowerEngine(roll, method, agreed.cohort, agreed.seed, agreed.toml(), terms, dict(start.states))
        tester = None
        if federated is not None:
            tester = (
                stack.enter_context(start_simulation(agreed, federated, network, start.server_state, workers=0)),
                federated,
            )
        server_state, history = train(folder, agreed, start, _Sites(federation, tester), listener)
        tell("All rounds are done; the sites judge their labels.")
        counts = federation.finish(server_state, agreed.rounds, json.dumps([_for_sites(record) for record in history]))
    note = " ".join(f"{site.name} did not come to the end." for site in sites if site.client not in counts)
    achieved = federated.noise_ratio if federated and federated.images.truth_known else None
    metrics = AuditMetrics(
        detection=None,
        audit=None,
        estimated=_estimated(counts, sites),
        classes=list(federated.images.classes if federated else agreed.data.classes),
        shape=list(network.shape),
    )
    reports = {
        site.name: SiteRecord(samples=site.samples, flagged=int(counts[site.client][0].get("flagged", 0)))
        for site in sites
        if site.client in counts
    }
    summary = training_summary(agreed, history, server_state, achieved, note).with_audit(metrics)
    summary = summary.model_copy(update={"sites": reports})
    folder.write_summary(summary)
    return Run(folder.path, agreed, summary, history)


@dataclass(frozen=True)
class _Sites:
    """The sites as an engine; a test set here is used where there is one, else what the sites hold out."""

    federation: FlowerEngine
    tester: tuple[Simulation, FederatedDataset] | None

    @property
    def state_rounds(self) -> Mapping[int, int]:
        return self.federation.kept

    def rounds(self, server_state: ServerState, first: int, last: int) -> Iterator[RoundResult]:
        return self.federation.rounds(server_state, first, last)

    def accuracy(self, server_state: ServerState, index: int) -> float | None:
        if self.tester is None:
            return self.federation.accuracy(server_state, index)
        simulation, federated = self.tester
        truth = federated.images.test_labels
        return accuracy(simulation.predict(server_state, "test", len(truth))[0], truth)

    def overlap_evaluation(self) -> bool:
        return False

    def on_checkpoint(self) -> None:
        """The sites keep what may still be asked for."""


@contextmanager
def _opened(home: Path, door: ServerConfig, tell: OnMessage) -> Iterator[SiteRegistry]:
    """SuperLink, gateway and a run; all of it ends with the block."""
    known = ServerCredentials.read(Path(door.credentials)) if door.credentials else None
    home.mkdir(parents=True, exist_ok=True)
    port, secret = free_port(), new_secret(home)
    ca = known.ca.read_bytes() if known else None
    tls = (known.ca, known.certificate, known.key) if known else None
    inside = f"127.0.0.1:{port}"
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, home / "flwr", ignore_errors=True)
        stack.callback(secret.unlink, missing_ok=True)
        gateway = stack.enter_context(  # first, since the address may be refused; it puts sites off until all is ready
            Gateway(door.address, inside, tls and tls[1:], known.ca if known else None, _HOLD, _LARGEST)
        )
        superlink = stack.enter_context(start_superlink(home, port, secret, tls))
        superlink.wait_for(port)
        control = Control(inside, ca)
        stack.callback(control.close)
        keys = {key: client for client, (_, key) in enumerate(known.sites[: door.clients] if known else ())}
        for key in keys:
            control.register(key)
        control.start_run()
        desk = TaskClient(inside, secret.read_bytes(), ca)
        stack.callback(desk.close)
        grid = stack.enter_context(server_grid(desk))
        tell(f"Waiting for {door.clients} sites at port {gateway.port}.")
        yield SiteRegistry(grid, door.clients, keys if known else None, tell)


def _network(agreed: Experiment) -> NetworkSpec:
    """For data that this machine never sees."""
    from rofl.core.rng import derive

    data, model = agreed.data, agreed.model
    shape = (data.channels, data.side, data.side)
    return NetworkSpec(model.name, shape, len(data.classes), model.width, derive(agreed.seed, "network"))


def _for_sites(record: RoundRecord) -> dict[str, Any]:
    """A round's record without who took part and who did not."""
    return record.model_copy(update={"cohort": [], "dropped": {}}).model_dump()


def _estimated(counts: Mapping[int, Any], sites: list[SiteInfo]) -> NoiseEstimate:
    """The noise as the sites see it: sums of counts."""
    flagged, samples = (
        sum(numbers.get(name, 0.0) for numbers, _ in counts.values()) for name in ("flagged", "samples")
    )
    tables = [tables["transition"] for _, tables in counts.values() if "transition" in tables]
    clients = {
        sites[client].name: round(numbers.get("flagged", 0.0) / max(numbers.get("samples", 0.0), 1.0), 6)
        for client, (numbers, _) in counts.items()
    }
    matrix = transition(torch.stack(tables).sum(dim=0)).tolist() if tables else []
    return NoiseEstimate(
        ratio=flagged / samples if samples else 0.0,
        clients=clients,
        transition=[[round(share, 6) for share in row] for row in matrix],
    )
