"""The Python API of `rofl serve`: admit the sites, run the rounds, and write a run folder like that of a local run."""

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rofl.audit.result import AuditMetrics
from rofl.config.schema import Experiment
from rofl.core.version import __version__
from rofl.data.preprocessing import AnyPreprocessing, encoder_preprocessing, preprocessing_of, user_preprocessing
from rofl.data.user import parse_columns
from rofl.errors import UserError
from rofl.federation.default_bounds import check_robust, check_shares, with_bounds
from rofl.federation.event_log import LOG_FILE, EventLog
from rofl.federation.farewells import FAREWELLS_FILE, Farewells
from rofl.federation.flower_engine import FlowerEngine
from rofl.federation.masking.choice import check_masks, conditions_of, uses_masks, with_masks
from rofl.federation.negotiate import negotiate
from rofl.federation.protocol import RoundRequest
from rofl.federation.round_driver import RoundDriver
from rofl.federation.server_config import ServerConfig
from rofl.federation.server_engine import ServerEngine
from rofl.federation.server_session import open_server
from rofl.federation.site_records import SiteInfo, count_suggestions, estimate_noise
from rofl.federation.site_registry import SiteRegistry
from rofl.training.guard import BLAME, judge_counts
from rofl.training.inputs import load_inputs
from rofl.training.local_engine import start_simulation
from rofl.training.lock import LOCK_FILE, exclusive
from rofl.training.loop import Listener, Names, load_or_init, train
from rofl.training.network_choice import network_at_sites, settle_network
from rofl.training.records import RoundRecord, SiteRecord
from rofl.training.run_dir import RunDir
from rofl.training.run_summary import training_summary
from rofl.training.runner import Run
from rofl.training.saved_model.model_record import ModelRecord

_FLOWER = "flower"  # the folder of Flower's logs; a start that failed leaves it behind


def _ignore(_: object) -> None:
    """The default of callbacks."""


@dataclass(frozen=True)
class ServeCallbacks:
    """What to call while a coordinator runs.

    Attributes:
        on_message: Called with sentences for people.
        on_start: Called with the experiment, once all sites are connected.
        listener: Called after every round.
    """

    on_message: Callable[[str], None] = _ignore
    on_start: Callable[[Experiment], None] = _ignore
    listener: Listener | None = None


def serve(
    folder: Path,
    config: ServerConfig,
    experiment: Experiment | None = None,
    *,
    callbacks: ServeCallbacks | None = None,
    data_dir: Path | None = None,
) -> Run:
    """Coordinate a new run with sites, from its first to its last round.

    Args:
        folder: The run folder, which must be new or empty.
        config: Where sites connect, and how long to wait for them.
        experiment: What to run. None where the sites bring their own data: the settings then follow from what they say
            about it, and `config.settings` changes them.
        callbacks: What to call on the way.
        data_dir: Where data sets lie; $ROFL_DATA where None.

    Returns:
        The finished run.

    Raises:
        UserError: If the folder is in use, the address is refused, or too few sites connect.
        Interrupted: On Ctrl-C; every finished round is on disk.
    """
    if folder.exists() and (
        not folder.is_dir() or {each.name for each in folder.iterdir()} - {_FLOWER, LOCK_FILE, LOG_FILE}
    ):
        raise UserError(f"{folder} is in the way: it is not an empty folder.", "another --out, or --resume")
    chosen = None if experiment is None else _complete(experiment, config)
    return _coordinate(RunDir(folder), config, chosen, callbacks or ServeCallbacks(), data_dir)


def resume_serve(
    folder: Path,
    config: ServerConfig | None = None,
    *,
    callbacks: ServeCallbacks | None = None,
    data_dir: Path | None = None,
) -> Run:
    """Go on with a run of `serve` from its newest checkpoint; the sites connect again by themselves.

    Args:
        folder: The run folder.
        config: Where sites connect; as it was where None.
        callbacks: What to call on the way.
        data_dir: Where data sets lie; $ROFL_DATA where None.

    Returns:
        The finished run.

    Raises:
        UserError: If the folder is not one of `rofl serve`, the run is finished, or too few sites connect.
        Interrupted: On Ctrl-C; every finished round is on disk.
    """
    run_dir, config = RunDir(folder), config or ServerConfig.read(folder)
    if run_dir.is_finished():
        raise UserError(f"The run in {folder} is finished.", f"rofl report {folder}")
    experiment = run_dir.read_experiment() if run_dir.exists() else None  # None: it ended before all sites came
    return _coordinate(run_dir, config, experiment, callbacks or ServeCallbacks(), data_dir)


def _complete(experiment: Experiment, config: ServerConfig) -> Experiment:
    """Return the experiment with what is the default in a federation: masks and bounds."""
    masked = with_masks(experiment, config)
    check_robust(experiment, masks=masked.transport == "fixed")
    return with_bounds(masked, config)


def _coordinate(
    run_dir: RunDir,
    config: ServerConfig,
    experiment: Experiment | None,
    callbacks: ServeCallbacks,
    data_dir: Path | None,
) -> Run:
    with (
        exclusive(run_dir.path, "program"),
        open_server(
            run_dir.path / _FLOWER, config, callbacks.on_message, EventLog(run_dir.path / LOG_FILE)
        ) as registry,
    ):
        config.write(run_dir.path)
        if experiment is not None:
            experiment = _settle(experiment, data_dir)
            run_dir.write_experiment(experiment)
        settings = experiment.toml() if experiment is not None else ""
        registry.take_out(config.without)
        registry.conditions = conditions_of(experiment, config)
        sites = _wait_for_sites(run_dir, registry, RoundRequest(settings), config, experiment)
        agreed = experiment if experiment is not None else _negotiate(sites, config)
        check_shares(sites, agreed)
        if agreed.clients != config.clients:
            raise UserError(f"The settings are for {agreed.clients} clients, and {config.clients} sites are asked for.")
        if experiment is None:
            callbacks.on_message(f"Classes: {', '.join(agreed.data.classes)}.")
            agreed = _settle(agreed, data_dir)
            run_dir.write_experiment(agreed)
        most = agreed.bounds.max_share if agreed.bounds.on else 1.0
        registry.conditions, registry.open_to_others = replace(conditions_of(agreed, config), max_share=most), True
        callbacks.on_start(agreed)
        registry.log.write("settings", settings=agreed.toml(), version=__version__)
        return _train(run_dir, agreed, registry, config, callbacks, data_dir)


def _negotiate(sites: Sequence[SiteInfo], config: ServerConfig) -> Experiment:
    return _complete(negotiate(sites, config.settings, config.clients), config)


def _wait_for_sites(
    run_dir: RunDir,
    registry: SiteRegistry,
    request: RoundRequest,
    config: ServerConfig,
    experiment: Experiment | None,
) -> Sequence[SiteInfo]:
    """Wait for the sites; where all rounds are done, only for those that are still to come to the end.

    Args:
        run_dir: The run folder.
        registry: The sites.
        request: What to ask them with.
        config: How long to wait, and for how many.
        experiment: The settings; None where they follow from what sites say.
    """
    start = run_dir.read_checkpoint() if experiment is not None else None
    over = experiment is not None and start is not None and start.index >= experiment.rounds
    if over or (run_dir.path / FAREWELLS_FILE).exists():
        return [registry.sites[client] for client in sorted(registry.sites)]  # `finish` waits for those that it needs
    return registry.wait_for_sites(request, config.wait, config.min_sites)


def _train(
    run_dir: RunDir,
    experiment: Experiment,
    registry: SiteRegistry,
    config: ServerConfig,
    callbacks: ServeCallbacks,
    data_dir: Path | None,
) -> Run:
    """Run the rounds that are left, collect the sites' reports, and write the summary."""
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
        engine = FlowerEngine(driver, config.timeout, masks, farewells=Farewells(run_dir.path / FAREWELLS_FILE))
        test = None
        if federated is not None:
            simulation = start_simulation(experiment, federated, network, start.server_state, workers=0)
            test = stack.enter_context(simulation), federated
        classes = federated.images.classes if federated else experiment.data.classes
        server_engine = ServerEngine(engine, network.classes, test)
        names = {client: site.name for client, site in registry.sites.items()}
        listener = _with_log(callbacks.listener, registry.log)
        trained = train(run_dir, experiment, start, server_engine, listener, Names(classes, names))
        callbacks.on_message("All rounds are done; the sites judge their labels.")
        shared = _history_for_sites(trained.history)
        reports = engine.finish(trained.selected_state, len(trained.history), shared, network.classes)
    sites = {client: registry.sites[client] for client in sorted(registry.sites)}
    missing = [registry.name(client) for client in registry.members if client not in reports.finished]
    note = " ".join(f"{name} did not come to the end." for name in missing)
    noise_ratio = federated.noise_ratio if federated and federated.images.truth_known else None
    metrics = AuditMetrics(
        detection=None,
        audit=None,
        estimated=estimate_noise(sites, reports),
        classes=list(classes),
        shape=list(network.shape),
    )
    known = reports.by_client
    site_records = {
        site.name: SiteRecord(
            samples=site.samples, flagged=known[site.client].flagged if site.client in known else None
        )
        for site in sites.values()
        if site.client in reports.finished
    }
    found = reports.counts
    warnings = judge_counts(count_suggestions(found), classes, trained.selected_round) if found else []
    summary = training_summary(experiment, trained, warnings, noise_ratio, note).with_audit(metrics)
    summary = summary.model_copy(update={"sites": site_records})
    form: AnyPreprocessing
    form = preprocessing_of(federated.images) if federated is not None else user_preprocessing(network.shape)
    if experiment.data.columns:
        encoder = parse_columns(experiment.data.columns)
        run_dir.write_encoder(encoder)
        form = encoder_preprocessing(encoder, network.shape[0])
    record = ModelRecord.of(experiment.name, network, tuple(classes), form)
    run_dir.write_base(network)
    run_dir.write_model_record(record.with_weights(trained.selected_state.model))
    run_dir.write_summary(summary)
    engine.confirm()
    registry.log.write("finished", rounds=len(trained.history), digest=summary.digest)
    return Run(run_dir.path, experiment, summary, trained.history)


def _with_log(listener: Listener | None, log: EventLog) -> Listener:
    """Return a listener that also logs rounds that were undone and sites that were set aside."""

    def logged(experiment: Experiment, record: RoundRecord) -> None:
        for event in record.warnings:
            if event.sign in BLAME:
                log.write(event.sign, round=record.round, message=event.message)
        if listener is not None:
            listener(experiment, record)

    return logged


def _settle(experiment: Experiment, data_dir: Path | None) -> Experiment:
    """Return settings with the fingerprint of the weights that stay as they are; sites must have the same."""
    if not experiment.model.keeps_base:
        return experiment
    if experiment.data.at_sites:
        return settle_network(experiment, network_at_sites(experiment, data_dir))[0]
    return settle_network(experiment, load_inputs(experiment, data_dir)[1])[0]


def _history_for_sites(history: Sequence[RoundRecord]) -> str:
    """Return the records of all rounds as JSON, without who took part: sites are not told about each other."""
    hidden: dict[str, object] = {"cohort": [], "dropped": {}, "suspects": []}
    anonymous = [
        record.model_copy(
            update={**hidden, "warnings": [event for event in record.warnings if event.sign not in BLAME]}
        )
        for record in history
    ]
    return json.dumps([record.model_dump() for record in anonymous])
