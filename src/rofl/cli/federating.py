"""Commands for sites on machines of their own: serve, join."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from rofl.cli.app import Data, DataDir, Dp, Json, MethodName, Out, Seed, Sets, Test, What, app, stderr, stdout
from rofl.errors import UserError

if TYPE_CHECKING:  # Flower is an extra, and slow to import
    from rofl.federation.join import OutgoingData

_PORT = 9443
_EXTRA = "pip install '.[flower]'"


@app.command(epilog="Example: rofl serve --preset digits --clients 3 --insecure --out runs/together")
def serve(
    what: What = "",
    preset: Annotated[str, typer.Option("--preset", help="the same, by option")] = "",
    clients: Annotated[int, typer.Option(min=0, help="how many sites; all that have credentials where absent")] = 0,
    sets: Sets = None,
    method: MethodName = None,
    seed: Seed = None,
    dp: Dp = None,
    out: Out = None,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="where the sites come in")] = "",
    credentials: Annotated[Path | None, typer.Option(metavar="DIR", help="the folder server of --init")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="no TLS, no keys: on this machine only")] = False,
    wait: Annotated[float | None, typer.Option(min=0, help="seconds for the sites to come; 600")] = None,
    timeout: Annotated[float | None, typer.Option(min=1, help="seconds for a site's part of a round; 3600")] = None,
    again: Annotated[Path | None, typer.Option("--resume", metavar="RUN", help="go on with this run")] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="DIR", help="make certificates and keys, and nothing else")
    ] = None,
    site: Annotated[list[str] | None, typer.Option("--site", help="of --init: a site's name; once for each")] = None,
    host: Annotated[list[str] | None, typer.Option("--host", help="of --init: a name that sites know us by")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Coordinate a run of sites on other machines: wait for them, run the rounds, write a run folder.

    Without a preset or settings the sites bring data of their own, and settings follow from what they say of it.
    """
    _needs_flower()
    if init is not None:
        _init(init, site or [], host or [])
        return
    from rofl import report
    from rofl.cli.progress import ProgressListener
    from rofl.cli.resolve import parse_overrides, resolve_experiment
    from rofl.cli.runs import show
    from rofl.federation import serve as federation
    from rofl.federation.server_config import ServerConfig
    from rofl.training.run import next_run_dir

    with ProgressListener(stderr) as watch:
        callbacks = federation.ServeCallbacks(_tell, watch.begin, watch)
        if again is not None:
            config = ServerConfig.read(again).updated(address, credentials, wait, timeout)
            if what or preset or clients or sets or method or seed is not None or dp is not None or out:
                raise UserError(
                    "A run that is resumed keeps its settings and its folder.", f"rofl serve --resume {again}"
                )
            done = federation.resume_serve(again, config, callbacks=callbacks, data_dir=data_dir)
        else:
            if insecure == (credentials is not None):
                raise UserError(
                    "Sites need keys and a certificate to trust, or all are on this machine.",
                    "--credentials DIR (made by rofl serve --init DIR), or --insecure",
                )
            config = ServerConfig.create(credentials, clients).updated(address, wait=wait, timeout=timeout)
            chosen = None
            if what or preset:
                counted = [f"clients={config.clients}", f"cohort={config.clients}"] if config.clients else []
                chosen = resolve_experiment(what or preset, [*counted, *(sets or [])], method, seed, dp=dp)
            count = chosen.clients if chosen else config.clients
            config = replace(config, clients=count, settings=parse_overrides(sets, method, seed, dp))
            if not config.clients:
                raise UserError("It is not said how many sites there are to be.", "--clients 2")
            folder = out or (next_run_dir(chosen) if chosen else Path("runs") / "federation")
            done = federation.serve(folder, config, chosen, callbacks=callbacks, data_dir=data_dir)
    report.write_report([done.folder], done.folder / "report.html", data_dir, report.Audience(server=True))
    show(done, as_json)


@app.command(epilog="Example: rofl join --server localhost:9443 --data scans/ --credentials keys/sites/hospital-a")
def join(
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="the coordinator")] = "",
    data: Data = None,
    test: Test = None,
    credentials: Annotated[
        Path | None, typer.Option(metavar="DIR", help="this site's folder from the coordinator")
    ] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="no TLS, no keys: on this machine only")] = False,
    client: Annotated[int, typer.Option(min=0, help="with --insecure: this site's number, counted from 0")] = 0,
    name: Annotated[str, typer.Option(help="with --insecure: this site's name")] = "",
    out: Out = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would leave this site, and stop")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Take part with this site's data, which stays here; at the end its own list of suspects and page are written.

    Without --data the site takes its part of the coordinator's data set: a rehearsal.
    """
    _needs_flower()
    if insecure == (credentials is not None):
        raise UserError("A site needs its credentials, or all are on one machine.", "--credentials DIR, or --insecure")
    from rofl.cli.own_data import decoding
    from rofl.cli.runs import show, write_page
    from rofl.federation import join as federation

    config = federation.SiteConfig(credentials, client, name, data, test, out, data_dir)
    with decoding(stderr) as progress:
        if dry_run:
            _list_outgoing(federation.preview(config, on_progress=progress))
            return
        done = federation.join(server, config, on_message=_tell, on_progress=progress)
    page = write_page([done], done.folder, data_dir)
    _tell(f"This site's suspects: {done.folder / 'suspects'}")
    _tell(f"This site's page: {page}")
    if as_json:
        show(done, as_json)


def _tell(text: str) -> None:
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def _list_outgoing(outgoing: "OutgoingData") -> None:
    """Which facts, arrays and sums leave a site, with sizes."""
    table = Table(title="What leaves this site", title_justify="left")
    for column in ("when", "what", "form", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for name, value in outgoing.info.fields().items():
        text = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
        table.add_row("once, on connecting", name, text, str(len(text)))
    for group, tensors in outgoing.tensors.items():
        for name, tensor in tensors.items():
            form = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
            table.add_row("each round", f"{group}/{name}", form, str(tensor.numel() * tensor.element_size()))
    for name in outgoing.sums:
        table.add_row("each round", f"sum of {name}", "number", "8")
    table.add_row("each round", "right, tested: of held-out samples", "numbers", "16")
    table.add_row("after the last round", "samples, flagged", "numbers", "16")
    classes = len(outgoing.info.classes)
    table.add_row(
        "after the last round", "given -> suggested labels, counted", f"({classes}, {classes})", str(8 * classes**2)
    )
    stdout.print(table)
    sizes = [tensor.numel() * tensor.element_size() for group in outgoing.tensors.values() for tensor in group.values()]
    _tell(
        f"{sum(sizes)} bytes of arrays a round. No sample, no label and no name of a sample leaves; "
        "nothing was sent now."
    )


def _init(folder: Path, sites: list[str], hosts: list[str]) -> None:
    """Certificates and keys, and what to do with them."""
    from rofl.federation.credentials import make_credentials

    make_credentials(folder, sites, hosts)
    stderr.print(
        f"The coordinator keeps {folder}/server (and {folder}/ca.key, away from the network, for later sites):"
    )
    stderr.print(f"  rofl serve --credentials {folder}/server ...", highlight=False)
    for name in sites:
        stderr.print(
            f"Send {folder}/sites/{name} to {name}, over a way that only you two can read; there:", highlight=False
        )
        stderr.print(
            f"  rofl join --server {(hosts or ['HOST'])[0]}:{_PORT} --credentials {name} --data PATH",
            highlight=False,
        )


def _needs_flower() -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise UserError("Flower is not installed.", _EXTRA)
