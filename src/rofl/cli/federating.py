"""Commands for sites on machines of their own: serve, join."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from rofl.cli.app import Data, DataDir, Dp, Json, MethodName, Out, Seed, Sets, Test, What, app, stderr, stdout
from rofl.errors import UserError

if TYPE_CHECKING:  # Flower is an extra, and slow to import
    from rofl.federation.coordinator import ServerConfig

_PORT = 9443
_LOGS = {"flower"}  # what a start that failed leaves behind
_HERE = ("localhost", "127.0.0.1", "[::1]")
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
    from rofl.federation.coordinator import ServerConfig, serve
    from rofl.training.run import next_run_dir
    from rofl.training.run_dir import RunDir

    if again is not None:
        folder, door = RunDir(again), ServerConfig.read(again)
        chosen = folder.read_experiment() if folder.exists() else None
        if folder.is_finished():
            raise UserError(f"The run in {again} is finished.", f"rofl report {again}")
        if what or preset or clients or sets or method or seed is not None or dp is not None or out:
            raise UserError("A run that is resumed keeps its settings and its folder.", f"rofl serve --resume {again}")
        door = _told(door, address, credentials, wait, timeout)
    else:
        door = _told(_door(credentials, insecure, clients), address, credentials, wait, timeout)
        chosen = None
        if what or preset:
            counted = [f"clients={door.clients}", f"cohort={door.clients}"] if door.clients else []
            chosen = resolve_experiment(what or preset, [*counted, *(sets or [])], method, seed, dp=dp)
        door = replace(
            door, clients=chosen.clients if chosen else door.clients, settings=parse_overrides(sets, method, seed, dp)
        )
        if not door.clients:
            raise UserError("It is not said how many sites there are to be.", "--clients 2")
        folder = RunDir(out or (next_run_dir(chosen) if chosen else Path("runs") / "federation"))
        if folder.path.exists() and (not folder.path.is_dir() or {each.name for each in folder.path.iterdir()} - _LOGS):
            raise UserError(f"{folder.path} is in the way: it is not an empty folder.", "another --out, or --resume")
    with ProgressListener(stderr) as watch:
        done = serve(folder, door, chosen, tell=_tell, begin=watch.begin, listener=watch, data_dir=data_dir)
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
    from rofl.federation.site import Site
    from rofl.training.run import resume

    with decoding(stderr) as progress:
        member = Site.of(credentials, client, name, data, test, out, data_dir, progress)
        if dry_run:
            _list_departing(*member.departing())
            return
        if not server:
            raise UserError("It is not said where the coordinator is.", "--server HOST:PORT")
        if insecure and server.rpartition(":")[0] not in _HERE:
            raise UserError("--insecure is for one machine, and the coordinator is elsewhere.", "--credentials DIR")
        member.take_part(server, _tell)
    done = resume(member.out)  # finished, so that it is read
    page = write_page([done], done.folder, data_dir)
    _tell(f"This site's suspects: {done.folder / 'suspects'}")
    _tell(f"This site's page: {page}")
    if as_json:
        show(done, as_json)


def _tell(text: str) -> None:
    stderr.print(text, markup=False, highlight=False, soft_wrap=True)


def _list_departing(said: dict[str, object], groups: dict[str, Any], sums: dict[str, float]) -> None:
    """Which facts, arrays and sums leave a site, with sizes."""
    table = Table(title="What leaves this site", title_justify="left")
    for column in ("when", "what", "form", "bytes"):
        table.add_column(column, justify="right" if column == "bytes" else "left")
    for name, value in said.items():
        table.add_row("once, on connecting", name, str(value), str(len(str(value))))
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            form = f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}"
            table.add_row("each round", f"{group}/{name}", form, str(tensor.numel() * tensor.element_size()))
    for name in sums:
        table.add_row("each round", f"sum of {name}", "number", "8")
    table.add_row("each round", "right, tested: of held-out samples", "numbers", "16")
    table.add_row("after the last round", "samples, flagged", "numbers", "16")
    classes = len(json.loads(str(said["classes"])))
    table.add_row(
        "after the last round", "given -> suggested labels, counted", f"({classes}, {classes})", str(8 * classes**2)
    )
    stdout.print(table)
    total = sum(tensor.numel() * tensor.element_size() for tensors in groups.values() for tensor in tensors.values())
    _tell(f"{total} bytes of arrays a round. No sample, no label and no name of a sample leaves; nothing was sent now.")


def _door(credentials: Path | None, insecure: bool, clients: int) -> "ServerConfig":
    from rofl.federation.coordinator import ServerConfig
    from rofl.federation.credentials import ServerCredentials

    if insecure == (credentials is not None):
        raise UserError(
            "Sites need keys and a certificate to trust, or all are on this machine.",
            "--credentials DIR (made by rofl serve --init DIR), or --insecure",
        )
    if credentials is None:
        return ServerConfig(f"127.0.0.1:{_PORT}", clients)
    there = len(ServerCredentials.read(credentials).sites)
    if clients > there:
        problem = f"There are credentials for {there} sites, not for {clients}."
        raise UserError(problem, "rofl serve --init DIR --site NAME")
    return ServerConfig(f"0.0.0.0:{_PORT}", clients or there)


def _told(
    door: "ServerConfig", address: str, credentials: Path | None, wait: float | None, timeout: float | None
) -> "ServerConfig":
    """A door with what the command line says of it."""
    return replace(
        door,
        address=address or door.address,
        credentials=str(credentials.absolute()) if credentials else door.credentials,
        wait=door.wait if wait is None else wait,
        timeout=door.timeout if timeout is None else timeout,
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
