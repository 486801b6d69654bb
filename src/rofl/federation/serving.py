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

from rofl import atomic
from rofl.audit import transition
from rofl.config import Experiment, read_toml
from rofl.course import Listener, account, learn, where_it_stands
from rofl.engines.client import NetworkSpec
from rofl.engines.flower.control import Control
from rofl.engines.flower.credentials import ServerCredentials
from rofl.engines.flower.federation import Federation, Terms
from rofl.engines.flower.gateway import Gateway
from rofl.engines.flower.processes import free_port, new_secret, start_superlink
from rofl.engines.flower.roll import Roll, Site
from rofl.engines.flower.runtime import TaskDesk, server_grid
from rofl.engines.flower.wire import Order
from rofl.engines.local import Simulation
from rofl.engines.rounds import RoundReport
from rofl.errors import UserError
from rofl.experiment import Run, materials, percent_right, simulate
from rofl.federation.agree import agree
from rofl.methods.base import Global
from rofl.run_folder import RunFolder
from rofl.scene import Scene

_HOLD = 15.0  # seconds that a site's question for work is held; after an empty answer Flower sleeps for 3
_LARGEST = 2**26  # bytes of one request; Flower sends arrays in pieces of 5 MB

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Door:
    """Where and how the sites come in, and how long they are waited for."""

    address: str  # host and port
    clients: int
    credentials: str = ""  # the folder `server` of rofl serve --init; "": none, on this machine only
    wait: float = 600.0  # seconds for the sites to come
    timeout: float = 3600.0  # seconds a site may take for its part of a round
    settings: dict[str, Any] = field(default_factory=dict)  # with dotted keys, where the sites' data leads to the rest

    def write(self, folder: Path) -> None:
        """Keep it, for a resume."""
        atomic.write(folder / "serve.toml", tomli_w.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> "Door":
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
    folder: RunFolder,
    door: Door,
    chosen: Experiment | None,
    *,
    tell: Tell,
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
        sites = roll.gather(Order(settings), door.wait)
        agreed = chosen if chosen is not None else agree(sites, door.settings)
        if agreed.clients != door.clients:
            raise UserError(f"The settings are for {agreed.clients} clients, and {door.clients} sites are asked for.")
        if chosen is None:
            tell(f"Classes: {', '.join(agreed.data.classes)}.")
            folder.write_experiment(agreed)
        begin(agreed)
        return _rounds(folder, agreed, roll, sites, door, listener, data_dir, tell)


def _rounds(
    folder: RunFolder,
    agreed: Experiment,
    roll: Roll,
    sites: list[Site],
    door: Door,
    listener: Listener | None,
    data_dir: Path | None,
    tell: Tell,
) -> Run:
    with ExitStack() as stack:
        scene, network = (None, _network(agreed)) if agreed.data.at_sites else materials(agreed, data_dir)
        start = where_it_stands(folder, agreed, network)
        terms = Terms(door.wait, door.timeout)
        method = agreed.build_method()
        federation = Federation(roll, method, agreed.cohort, agreed.seed, agreed.toml(), terms, dict(start.states))
        tester = None
        if scene is not None:
            tester = (stack.enter_context(simulate(agreed, scene, network, start.glob, workers=0)), scene)
        glob, history = learn(folder, agreed, start, _Sites(federation, tester), listener)
        tell("All rounds are done; the sites judge their labels.")
        counts = federation.finish(glob, agreed.rounds, json.dumps([_for_sites(entry) for entry in history]))
    note = " ".join(f"{site.name} did not come to the end." for site in sites if site.client not in counts)
    summary = {
        **account(agreed, history, glob, scene.noise_ratio if scene and scene.images.truth_known else None, note),
        "detection": None,
        "audit": None,
        "estimated": _estimated(counts, sites),
        "classes": list(scene.images.classes if scene else agreed.data.classes),
        "shape": list(network.shape),
        "sites": {
            site.name: {"samples": site.samples, "flagged": int(counts[site.client][0].get("flagged", 0))}
            for site in sites
            if site.client in counts
        },
    }
    folder.write_summary(summary)
    return Run(folder.path, agreed, summary, history)


@dataclass(frozen=True)
class _Sites:
    """The sites as an engine; a test set here is used where there is one, else what the sites hold out."""

    federation: Federation
    tester: tuple[Simulation, Scene] | None

    @property
    def kept(self) -> Mapping[int, int]:
        return self.federation.kept

    def rounds(self, glob: Global, first: int, last: int) -> Iterator[RoundReport]:
        return self.federation.rounds(glob, first, last)

    def accuracy(self, glob: Global, index: int) -> float | None:
        if self.tester is None:
            return self.federation.accuracy(glob, index)
        simulation, scene = self.tester
        truth = scene.images.test_labels
        return percent_right(simulation.predict(glob, "test", len(truth))[0], truth)

    def measures_beside(self) -> bool:
        return False

    def settle(self) -> None:
        """The sites keep what may still be asked for."""


@contextmanager
def _opened(home: Path, door: Door, tell: Tell) -> Iterator[Roll]:
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
        desk = TaskDesk(inside, secret.read_bytes(), ca)
        stack.callback(desk.close)
        grid = stack.enter_context(server_grid(desk))
        tell(f"Waiting for {door.clients} sites at port {gateway.port}.")
        yield Roll(grid, door.clients, keys if known else None, tell)


def _network(agreed: Experiment) -> NetworkSpec:
    """For data that this machine never sees."""
    from rofl.core.seeds import derive

    data, model = agreed.data, agreed.model
    shape = (data.channels, data.side, data.side)
    return NetworkSpec(model.name, shape, len(data.classes), model.width, derive(agreed.seed, "network"))


def _for_sites(entry: Mapping[str, Any]) -> dict[str, Any]:
    """A line of metrics.jsonl without who took part and who did not."""
    return {**entry, "cohort": [], "dropped": {}}


def _estimated(counts: Mapping[int, Any], sites: list[Site]) -> dict[str, Any]:
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
    return {
        "ratio": flagged / samples if samples else 0.0,
        "clients": clients,
        "transition": [[round(share, 6) for share in row] for row in matrix],
    }
