"""Flower apps: what `flwr run` starts, in Flower's simulation and in a deployment of one's own."""

from collections.abc import Mapping
from logging import INFO
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.supercore import log

from rofl.config import presets
from rofl.config.overrides import apply_overrides, parse_override
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.tensors import digest
from rofl.federation import MethodStrategy, make_client_app
from rofl.federation.site_data import PartitionedData
from rofl.training.inputs import load_inputs

client_app = make_client_app(PartitionedData())
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds by Flower's own loop, with our strategy; the digest goes to the log and, where asked, to a file."""
    told = context.run_config
    chosen = experiment_from(told)
    network = load_inputs(chosen, None)[1]
    method = chosen.build_method()
    strategy = MethodStrategy(
        method, method.init(network.build()), chosen.toml(), chosen.clients, chosen.cohort, chosen.seed
    )
    strategy.start(grid, ArrayRecord({}), num_rounds=chosen.rounds)
    result = digest(strategy.server_state.model, strategy.server_state.aux)
    log(INFO, "digest %s", result)
    path = str(told.get("digest-file", ""))
    if path:
        Path(path).write_text(result)


def experiment_from(told: Mapping[str, bool | float | int | str]) -> Experiment:
    """The app's run config: a preset, and settings as `rofl run --set` takes them, with spaces between."""
    changes = dict(parse_override(text) for text in str(told.get("settings", "")).split())
    settings = presets.find_preset(str(told.get("preset", "digits"))).for_method(changes.get("method.name"))
    return parse_experiment(apply_overrides(settings, changes))
