"""The Flower apps that `flwr run` starts, in Flower's simulation or in a deployment (`examples/flower`)."""

import logging
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp

from rofl.config import presets
from rofl.config.overrides import apply_overrides, parse_override
from rofl.config.schema import Experiment, parse_experiment
from rofl.core.tensors import digest
from rofl.data import atomic
from rofl.federation import MethodStrategy, make_client_app
from rofl.federation.site_data import PartitionedData
from rofl.training.inputs import load_inputs

client_app = make_client_app(PartitionedData())
server_app = ServerApp()


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    """Run all rounds in Flower's own loop with `MethodStrategy`.

    Writes the digest of the final server state to the log and, if the run config sets `digest-file`, to that file.
    """
    run_config = context.run_config
    experiment = experiment_from_run_config(run_config)
    network = load_inputs(experiment, None)[1]
    method = experiment.build_method()
    strategy = MethodStrategy(
        method,
        method.init(network.build()),
        experiment,
    )
    strategy.start(grid, ArrayRecord({}), num_rounds=experiment.rounds)
    last = strategy.server_state.evaluated()
    result = digest(last.model, last.aux)
    logging.getLogger("flwr").info("digest %s", result)
    path = str(run_config.get("digest-file", ""))
    if path:
        atomic.atomic_write(Path(path), result)


def experiment_from_run_config(run_config: Mapping[str, bool | float | int | str]) -> Experiment:
    """Return the experiment that a run config describes.

    `preset` is the name of a preset. `settings` are arguments of `rofl run --set`, separated by spaces.

    Args:
        run_config: Flower's run config: `[tool.flwr.app.config]` of the app, changed by `flwr run --run-config`.

    Raises:
        UserError: If the preset is unknown, or a setting is unknown or invalid.
    """
    changes = dict(parse_override(text) for text in str(run_config.get("settings", "")).split())
    settings = presets.find_preset(str(run_config.get("preset", "digits"))).for_method(changes.get("method.name"))
    return parse_experiment(apply_overrides(settings, changes))
