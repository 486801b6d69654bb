"""Flower apps: what `flwr run` starts, in Flower's simulation and in a deployment of one's own."""

from collections.abc import Mapping
from logging import INFO
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from rofl import presets
from rofl.config import Experiment, experiment, parse_change, with_changes
from rofl.core.tensors import digest
from rofl.engines.flower import MethodStrategy, make_client_app
from rofl.experiment import materials
from rofl.federation.hosts import PartHost

client_app = make_client_app(PartHost())
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds by Flower's own loop, with our strategy; the digest goes to the log and, where asked, to a file."""
    told = context.run_config
    chosen = experiment_from(told)
    network = materials(chosen, None)[1]
    method = chosen.build_method()
    strategy = MethodStrategy(
        method, method.begin(network.build()), chosen.toml(), chosen.clients, chosen.cohort, chosen.seed
    )
    strategy.start(grid, ArrayRecord({}), num_rounds=chosen.rounds)
    result = digest(strategy.glob.model, strategy.glob.extra)
    log(INFO, "digest %s", result)
    path = str(told.get("digest-file", ""))
    if path:
        Path(path).write_text(result)


def experiment_from(told: Mapping[str, bool | float | int | str]) -> Experiment:
    """The app's run config: a preset, and settings as `rofl run --set` takes them, with spaces between."""
    changes = dict(parse_change(text) for text in str(told.get("settings", "")).split())
    settings = presets.find(str(told.get("preset", "digits"))).for_method(changes.get("method.name"))
    return experiment(with_changes(settings, changes))
