"""`rofl serve`: coordinate a run of sites on other machines."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rofl.cli.app import app, print_message
from rofl.cli.options import DataDir, Dp, Insecure, Json, Log, MethodName, Out, Seed, Sets, What, check_flower
from rofl.errors import UserError

if TYPE_CHECKING:  # Flower is an extra, and slow to import
    from rofl.federation.coordinator import ServeCallbacks

_PORT = 9443


@app.command("serve", epilog="Example: rofl serve --preset digits --clients 3 --insecure --out runs/together")
def serve_command(
    what: What = "",
    preset: Annotated[str, typer.Option("--preset", help="the same as an option")] = "",
    clients: Annotated[
        int | None, typer.Option(min=1, help="the number of sites; all with credentials if omitted")
    ] = None,
    sets: Sets = None,
    method: MethodName = None,
    seed: Seed = None,
    dp: Dp = None,
    out: Out = None,
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="where sites connect")] = "",
    credentials: Annotated[
        Path | None, typer.Option(metavar="DIR", help="the folder `server` that --init wrote")
    ] = None,
    insecure: Insecure = False,
    wait: Annotated[float | None, typer.Option(min=0, help="seconds to wait for the sites; 600")] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--round-timeout", "--timeout", min=1, help="seconds for a site's part of a round; 3600"),
    ] = None,
    min_sites: Annotated[
        int | None, typer.Option(min=0, help="the least number of sites to start after --wait, and of a round")
    ] = None,
    masks: Annotated[
        bool | None,
        typer.Option("--masks/--no-masks", help="sites mask their sums; on if a round has three sites or more"),
    ] = None,
    robust: Annotated[
        str, typer.Option(help="median, trimmed or krum instead of the mean over sites; needs --no-masks")
    ] = "",
    again: Annotated[Path | None, typer.Option("--resume", metavar="RUN", help="continue this run")] = None,
    without: Annotated[
        list[str] | None, typer.Option("--without", help="with --resume: a site that has left for good; repeatable")
    ] = None,
    init: Annotated[Path | None, typer.Option(metavar="DIR", help="create certificates and keys, then stop")] = None,
    site: Annotated[list[str] | None, typer.Option("--site", help="with --init: a site's name; repeatable")] = None,
    host: Annotated[
        list[str] | None, typer.Option("--host", help="with --init: a host name of the coordinator")
    ] = None,
    show: Annotated[bool, typer.Option("--dashboard", help="show the run in a browser of this machine")] = False,
    show_port: Annotated[
        int, typer.Option("--dashboard-port", min=0, max=65535, help="its port; 0 for any free port")
    ] = 8765,
    log: Log = None,
    renew: Annotated[
        list[str] | None, typer.Option("--renew", help="with --init: a site that gets a new key; repeatable")
    ] = None,
    revoke: Annotated[
        list[str] | None, typer.Option("--revoke", help="with --credentials: refuse a site's key from now on, and stop")
    ] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Coordinate a run of sites on other machines: wait for them, run the rounds, write a run folder.

    Without a preset or settings the sites bring their own data, and the settings follow from what they say about it.
    """
    check_flower()
    if init is not None:
        _make_credentials(init, site or [], host or [], renew or [])
        return
    if revoke:
        _revoke(credentials, revoke)
        return
    from rofl.cli.progress import check_log
    from rofl.cli.resolve import ExperimentOptions, resolve_experiment
    from rofl.cli.tables import print_run
    from rofl.federation import coordinator
    from rofl.federation.server_config import ServerConfig
    from rofl.report import Audience, write_report
    from rofl.training.runner import next_run_dir

    check_log(log)
    with ExitStack() as stack:
        if again is not None:
            config = ServerConfig.read(again).updated(address, credentials, wait, timeout, min_sites, without or ())
            if what or preset or clients or sets or method or seed is not None or dp is not None or out or robust:
                problem = "A resumed run keeps its settings and its folder."
                raise UserError(problem, f"rofl serve --resume {again}")
            callbacks = stack.enter_context(_follow(again, log, show_port if show else None))
            finished = coordinator.resume_serve(again, config, callbacks=callbacks, data_dir=data_dir)
        else:
            if without:
                raise UserError("--without needs --resume.", "--clients, for a new one")
            if insecure == (credentials is not None):
                raise UserError(
                    "Sites need keys and a certificate to trust, or all are on this machine.",
                    "--credentials DIR (made by rofl serve --init DIR), or --insecure",
                )
            config = ServerConfig.create(credentials, clients or 0).updated(
                address, wait=wait, timeout=timeout, min_sites=min_sites
            )
            config = replace(config, masks="auto" if masks is None else "on" if masks else "off")
            sets = [*(sets or []), *([f"server.robust={robust}"] if robust else [])]
            options = ExperimentOptions(what or preset, sets, method, seed, dp)
            experiment = None
            if options.what:
                counts = [f"clients={config.clients}", f"cohort={config.clients}"] if config.clients else []
                experiment = resolve_experiment(replace(options, sets=[*counts, *(sets or [])]))
            count = experiment.clients if experiment else config.clients
            config = replace(config, clients=count, settings=options.overrides())
            if not config.clients:
                raise UserError("The number of sites is missing.", "--clients 2")
            if config.min_sites > config.clients:
                raise UserError(f"There are {config.clients} sites, fewer than --min-sites.", "a smaller number")
            folder = out or (next_run_dir(experiment) if experiment else Path("runs") / "federation")
            callbacks = stack.enter_context(_follow(folder, log, show_port if show else None))
            finished = coordinator.serve(folder, config, experiment, callbacks=callbacks, data_dir=data_dir)
    write_report([finished.folder], finished.folder / "report.html", data_dir, Audience(server=True))
    print_run(finished, as_json)


@contextmanager
def _follow(folder: Path, log: list[str] | None, port: int | None) -> "Iterator[ServeCallbacks]":
    """Yield the listener of the run: terminal, trackers, and the live view.

    Args:
        folder: The run folder.
        log: The names of trackers.
        port: The port of the live view; None for no such view.
    """
    from rofl.cli.progress import ProgressListener, shown_and_tracked
    from rofl.cli.watch import dashboard
    from rofl.federation.coordinator import ServeCallbacks

    with ExitStack() as stack:
        if port is not None:
            stack.enter_context(dashboard(folder, port))
        progress = stack.enter_context(ProgressListener())
        listener = stack.enter_context(shown_and_tracked(progress, folder, log))
        yield ServeCallbacks(print_message, partial(progress.begin, folder=folder), listener)


def _revoke(credentials: Path | None, sites: list[str]) -> None:
    """Revoke sites' keys, and print when that takes effect."""
    from rofl.federation.credentials import revoke_sites

    if credentials is None:
        raise UserError("The folder of credentials is missing.", "--credentials DIR/server")
    revoke_sites(credentials, sites)
    print_message(f"Revoked: {', '.join(sites)}. A running coordinator refuses them from now on.")


def _make_credentials(folder: Path, sites: list[str], hosts: list[str], renew: list[str]) -> None:
    """Write certificates and keys, and print what to do with them."""
    from rofl.federation.issue_credentials import make_credentials

    make_credentials(folder, sites, hosts, renew)
    print_message(
        f"The coordinator keeps {folder}/server (and {folder}/ca.key, away from the network, for later sites):"
    )
    print_message(f"  rofl serve --credentials {folder}/server ...")
    for name in dict.fromkeys([*sites, *renew]):
        print_message(f"Send {folder}/sites/{name} to {name}, over a private channel; there:")
        server = f"{(hosts or ['HOST'])[0]}:{_PORT}"
        print_message(f"  rofl join --server {server} --credentials {name} --data PATH")
