"""Training with sites: run the rounds, collect the final reports, and write the summary."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.data.federated import FederatedDataset
from rofl.federation.final_reports import REPORTS_FILE, FinalReports
from rofl.federation.flower_engine import FlowerEngine
from rofl.federation.masking.choice import check_masks, uses_masks
from rofl.federation.round_driver import RoundDriver
from rofl.federation.server_config import ServerConfig
from rofl.federation.server_outcome import ServerOutcome
from rofl.federation.site_registry import SiteRegistry
from rofl.methods.base import ServerState
from rofl.simulation.engine import Simulation
from rofl.simulation.rounds import RoundResult
from rofl.training.engine_protocol import Engine
from rofl.training.guard import BLAME
from rofl.training.held_out import Evaluation
from rofl.training.inputs import load_inputs
from rofl.training.local_engine import evaluate, start_simulation
from rofl.training.loop import Listener, Names, load_or_init, train
from rofl.training.network_choice import network_at_sites
from rofl.training.records import RoundRecord
from rofl.training.run_dir import RunDir
from rofl.training.runner import Run


def _ignore(_: object) -> None:
    """Do nothing; the default callback."""


@dataclass(frozen=True)
class ServeCallbacks:
    """The callbacks of a running coordinator.

    Attributes:
        on_message: Called with status messages for the user.
        on_start: Called with the experiment before the first round, once enough sites are connected.
        listener: Called after every round.
    """

    on_message: Callable[[str], None] = _ignore
    on_start: Callable[[Experiment], None] = _ignore
    listener: Listener | None = None


@dataclass(frozen=True)
class ServerEngine(Engine):
    """The engine of a run with sites.

    Accuracy is measured on the coordinator's own test set if the settings name a data set, and otherwise on the
    samples that the sites hold out.
    """

    engine: FlowerEngine
    classes: int
    test: tuple[Simulation, FederatedDataset] | None

    @property
    def state_rounds(self) -> Mapping[int, int]:
        """The round of the newest client state, by client."""
        return self.engine.state_rounds

    def run_round(
        self, server_state: ServerState, index: int, cautious: bool = False, aside: frozenset[int] = frozenset()
    ) -> RoundResult:
        """Run one round with the sites; those in `aside` neither train nor evaluate."""
        return self.engine.run_round(server_state, index, cautious, aside)

    def evaluate(self, server_state: ServerState, index: int) -> Evaluation:
        """Return accuracy and counts by class; both are None if no site answers."""
        if self.test is None:
            return self.engine.evaluate(server_state, index, self.classes)
        return evaluate(*self.test, server_state)

    def overlap_evaluation(self) -> bool:
        """Return False, because the sites are busy with the next round."""
        return False

    def on_checkpoint(self) -> None:
        """Do nothing, because each site stores its own client state."""


def train_with_sites(
    run_dir: RunDir,
    experiment: Experiment,
    registry: SiteRegistry,
    config: ServerConfig,
    callbacks: ServeCallbacks,
    data_dir: Path | None,
) -> Run:
    """Run the remaining rounds, collect the sites' reports, and write the summary.

    Args:
        run_dir: The run folder.
        experiment: The settings, which all sites have agreed to.
        registry: The sites.
        config: How long to wait for sites, and for how many.
        callbacks: The run's callbacks.
        data_dir: The folder of published data sets; $ROFL_DATA if None.
    """
    with ExitStack() as stack:
        if experiment.data.at_sites:
            federated, network = None, network_at_sites(experiment, data_dir)
        else:
            federated, network = load_inputs(experiment, data_dir)
        start = load_or_init(run_dir, experiment, network)
        driver = RoundDriver(
            registry,
            experiment.build_method(),
            experiment.cohort,
            experiment.seed,
            experiment.toml(),
            config.wait,
            dict(start.states),
            quorum=max(1, config.min_sites),
        )
        masks = uses_masks(experiment, config)
        check_masks(registry, masks)
        callbacks.on_message(
            f"Sums of sites are {'masked: this machine sees no single one' if masks else 'not masked'}."
        )
        engine = FlowerEngine(
            driver,
            config.timeout,
            masks,
            own_tests=experiment.data.at_sites,
            final_reports=FinalReports(run_dir.path / REPORTS_FILE),
        )
        test = None
        if federated is not None:
            simulation = start_simulation(experiment, federated, network, start.server_state, workers=0)
            test = stack.enter_context(simulation), federated
        classes = federated.images.classes if federated else experiment.data.classes
        server_engine = ServerEngine(engine, network.classes, test)
        names = {client: site.name for client, site in registry.sites.items()}
        listener = _with_log(callbacks.listener, registry, run_dir)
        trained = train(run_dir, experiment, start, server_engine, listener, Names(classes, names))
        callbacks.on_message("All rounds are done; the sites judge their labels.")
        shared = _history_for_sites(trained.history)
        reports = engine.finish(trained.selected_state, len(trained.history), shared, network.classes)
    summary = ServerOutcome(experiment, network, trained, reports, federated).write(run_dir, registry)
    engine.confirm()
    registry.log.write("finished", rounds=len(trained.history), digest=summary.digest)
    return Run(run_dir.path, experiment, summary, trained.history)


def _with_log(listener: Listener | None, registry: SiteRegistry, run_dir: RunDir) -> Listener:
    """Return a listener that also logs undone rounds and sites that are set aside, and writes the sites' names.

    Args:
        listener: The listener of the run; None for none.
        registry: The sites, of which some may join between two rounds.
        run_dir: The run folder.
    """
    log = registry.log

    def logged(experiment: Experiment, record: RoundRecord) -> None:
        names = {client: site.name for client, site in registry.sites.items()}
        run_dir.write_client_names([names.get(client, f"client {client}") for client in range(experiment.clients)])
        for event in record.warnings:
            if event.sign in BLAME:
                log.write(event.sign, round=record.round, message=event.message)
        if listener is not None:
            listener(experiment, record)

    return logged


def _history_for_sites(history: Sequence[RoundRecord]) -> str:
    """Return the records of all rounds as JSON, without the cohorts, which sites must not learn."""
    hidden: dict[str, object] = {"cohort": [], "dropped": {}, "suspects": []}
    anonymous = [
        record.model_copy(
            update={**hidden, "warnings": [event for event in record.warnings if event.sign not in BLAME]}
        )
        for record in history
    ]
    return json.dumps([record.model_dump() for record in anonymous])
