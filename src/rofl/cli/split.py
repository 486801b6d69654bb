"""`rofl split`: draws the noisy labels and clients of an experiment once, and saves them in a file."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import app, print_json, print_message, stdout
from rofl.cli.options import DataDir, Json, Seed, Sets, What

SplitOut = Annotated[Path | None, typer.Option("--out", help="the file to write; none if omitted")]


@app.command("scene", hidden=True)  # its name in 0.1
@app.command(
    "split", epilog="Example: rofl split digits --set noise.client_spread=0.2 --seed 1 --out split.safetensors"
)
def split_command(
    context: typer.Context,
    what: What = "digits",
    sets: Sets = None,
    seed: Seed = None,
    out: SplitOut = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Draw wrong labels and clients once, and keep them for several runs with the same settings."""
    from rofl.cli.data_tables import split_facts, split_table
    from rofl.cli.resolve import ExperimentOptions, resolve_experiment
    from rofl.data.federated import load_federated

    if context.info_name == "scene":
        print_message("notice: rofl scene is now called rofl split")
    experiment = resolve_experiment(ExperimentOptions(what, sets, None, seed))
    federated = load_federated(experiment.split, data_dir)
    if out is not None:
        federated.save(out)
        print_message(f"To use it, add to rofl run: --set data.split={out}")
    if as_json:
        print_json(asdict(split_facts(federated)))
    else:
        stdout.print(split_table(federated))
