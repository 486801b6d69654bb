"""The Python API of `rofl serve`: admit sites, run the rounds, and write the same run folder as a local run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rofl.config.schema import Experiment
from rofl.core.version import __version__
from rofl.errors import UserError
from rofl.federation.event_log import LOG_FILE, EventLog
from rofl.federation.federated_training import ServeCallbacks, train_with_sites
from rofl.federation.final_reports import REPORTS_FILE
from rofl.federation.masking.choice import conditions_of, with_masks
from rofl.federation.negotiate import check_robust, check_shares, negotiate, with_bounds
from rofl.federation.protocol import RoundRequest
from rofl.federation.server_config import ServerConfig
from rofl.federation.server_session import open_server
from rofl.federation.site_info import SiteInfo
from rofl.federation.site_registry import SiteRegistry
from rofl.training.inputs import load_inputs
from rofl.training.network_choice import network_at_sites, settle_network
from rofl.training.run_dir import RunDir
from rofl.training.run_files import LOCK_FILE, exclusive
from rofl.training.runner import Run

__all__ = ["ServeCallbacks", "resume_serve", "serve"]
_FLOWER = "flower"  # the folder of Flower's logs; a failed start leaves it behind


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
        experiment: The experiment to run. None if the sites bring their own data: the settings are then chosen from
            their descriptions of it, and changed by `config.settings`.
        callbacks: The run's callbacks.
        data_dir: The folder of published data sets; $ROFL_DATA if None.

    Returns:
        The finished run.

    Raises:
        UserError: If the folder is in use, the address is refused, or too few sites connect.
        Interrupted: On Ctrl-C; every finished round is on disk.
    """
    if folder.exists() and (
        not folder.is_dir() or {each.name for each in folder.iterdir()} - {_FLOWER, LOCK_FILE, LOG_FILE}
    ):
        raise UserError(f"{folder} exists and is not an empty folder.", "another --out, or --resume")
    chosen = None if experiment is None else _complete(experiment, config)
    return _coordinate(RunDir(folder), config, chosen, callbacks or ServeCallbacks(), data_dir)


def resume_serve(
    folder: Path,
    config: ServerConfig | None = None,
    *,
    callbacks: ServeCallbacks | None = None,
    data_dir: Path | None = None,
) -> Run:
    """Resume a run of `serve` from its newest checkpoint; the sites reconnect by themselves.

    Args:
        folder: The run folder.
        config: Where sites connect; None uses the settings of the first start.
        callbacks: The run's callbacks.
        data_dir: The folder of published data sets; $ROFL_DATA if None.

    Returns:
        The finished run.

    Raises:
        UserError: If the folder is not one of `rofl serve`, the run is finished, or too few sites connect.
        Interrupted: On Ctrl-C; every finished round is on disk.
    """
    run_dir, config = RunDir(folder), config or ServerConfig.read(folder)
    if run_dir.is_finished():
        raise UserError(f"The run in {folder} is finished.", f"rofl report {folder}")
    experiment = run_dir.read_experiment() if run_dir.exists() else None  # None: it ended before all sites connected
    return _coordinate(run_dir, config, experiment, callbacks or ServeCallbacks(), data_dir)


def _complete(experiment: Experiment, config: ServerConfig) -> Experiment:
    """Return the experiment with the defaults of a federation: masks and bounds."""
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
        registry.conditions = replace(conditions_of(experiment, config), begun=bool(run_dir.read_history()))
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
        registry.conditions = replace(conditions_of(agreed, config), max_share=most, begun=True)
        registry.open_to_others = True
        callbacks.on_start(agreed)
        registry.log.write("settings", settings=agreed.toml(), version=__version__)
        return train_with_sites(run_dir, agreed, registry, config, callbacks, data_dir)


def _negotiate(sites: Sequence[SiteInfo], config: ServerConfig) -> Experiment:
    return _complete(negotiate(sites, config.settings, config.clients), config)


def _wait_for_sites(
    run_dir: RunDir,
    registry: SiteRegistry,
    request: RoundRequest,
    config: ServerConfig,
    experiment: Experiment | None,
) -> Sequence[SiteInfo]:
    """Wait for the sites, unless all rounds are done: `finish` then waits for those that have not reported.

    Args:
        run_dir: The run folder.
        registry: The sites.
        request: The request to send to new connections.
        config: How long to wait, and for how many sites.
        experiment: The settings; None if they are chosen from the sites' descriptions.
    """
    start = run_dir.checkpoints.read() if experiment is not None else None
    over = experiment is not None and start is not None and start.index >= experiment.rounds
    if over or (run_dir.path / REPORTS_FILE).exists():
        return [registry.sites[client] for client in sorted(registry.sites)]  # `finish` waits for the others
    return registry.wait_for_sites(request, config.wait, config.min_sites)


def _settle(experiment: Experiment, data_dir: Path | None) -> Experiment:
    """Return the settings with the fingerprint of the frozen base weights, which must be the same at all sites."""
    if not experiment.model.keeps_base:
        return experiment
    if experiment.data.at_sites:
        return settle_network(experiment, network_at_sites(experiment, data_dir))[0]
    return settle_network(experiment, load_inputs(experiment, data_dir)[1])[0]
