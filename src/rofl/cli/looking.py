"""Commands that show: report, scene, data check, and what there is."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from rofl.cli.app import DataDir, Json, Seed, Sets, Test, What, app, data_app, stderr, stdout
from rofl.errors import UserError


@app.command("report", epilog="Example: rofl report runs/digits-rofl-1 runs/digits-plain-1 --out both.html")
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")],
    out: Annotated[Path | None, typer.Option("--out", help="the page; report.html in the first folder")] = None,
    site: Annotated[str | None, typer.Option("--site", metavar="NAME", help="with samples of this client only")] = None,
    server: Annotated[bool, typer.Option("--server", help="without any sample")] = False,
    data_dir: DataDir = None,
) -> None:
    """Make one page of one or several finished runs."""
    if server and site is not None:
        raise UserError("A page is for a site or for the server.", "--site or --server, and the other one after it")
    from rofl import report

    page = report.write_report(folders, out, data_dir, report.Audience(site, server))
    stdout.print(str(page), markup=False, highlight=False, soft_wrap=True)


@app.command(
    "scene", epilog="Example: rofl scene digits --set noise.client_spread=0.2 --seed 1 --out scene.safetensors"
)
def scene_command(
    what: What = "digits",
    sets: Sets = None,
    seed: Seed = None,
    out: Annotated[Path | None, typer.Option("--out", help="the file to write; none where absent")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Draw wrong labels and clients once, and keep them for several runs with the same settings."""
    from rofl.cli.resolve import resolve_experiment
    from rofl.cli.scene import describe, scene_table
    from rofl.data.federated import load_federated

    federated = load_federated(resolve_experiment(what, sets, None, seed).split, data_dir)
    if out is not None:
        federated.save(out)
        stderr.print(f"To use it, add to rofl run: --set data.split={out}", markup=False, highlight=False)
    if as_json:
        stdout.print_json(json.dumps(describe(federated)))
    else:
        stdout.print(scene_table(federated))


@data_app.command("check", epilog="Example: rofl data check photos")
def check_data(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="a folder, or a .csv, .parquet or .npz file")],
    test: Test = None,
    as_json: Json = False,
) -> None:
    """Look at data of your own before a run: clients, classes, sizes, duplicates, and what cannot be read."""
    from rofl.cli import own_data

    try:
        found = own_data.check(path, test, stderr)
    except UserError as error:
        if as_json:
            stdout.print_json(json.dumps({"usable": False, "problem": error.sentence, "try": error.hint}))
        raise
    if as_json:
        stdout.print_json(json.dumps(found))
    else:
        stdout.print(own_data.check_table(found, path.name))


@app.command("presets")
def list_presets(as_json: Json = False) -> None:
    """The presets by name."""
    from rofl.config.presets import PRESETS

    listing({name: preset.about for name, preset in PRESETS.items()}, "preset", as_json)


@app.command("methods")
def list_methods(as_json: Json = False) -> None:
    """The methods by name."""
    from rofl.methods import METHODS

    listing({name: (kind.__doc__ or "").splitlines()[0] for name, kind in METHODS.items()}, "method", as_json)


@app.command("datasets")
def list_datasets(as_json: Json = False) -> None:
    """The data sets by name."""
    from rofl.data import DATASETS

    listing({name: (load.__doc__ or "").splitlines()[0] for name, load in DATASETS.items()}, "data set", as_json)


def listing(about: dict[str, str], what: str, as_json: bool) -> None:
    """Names with a line about each."""
    if as_json:
        stdout.print_json(json.dumps(about))
        return
    table = Table(what, "what it is")
    for name, line in about.items():
        table.add_row(name, line)
    stdout.print(table)
