"""`rofl watch`: a run as it goes, in a browser."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rofl.cli.app import app, print_message, print_warning, stderr
from rofl.errors import UserError

if TYPE_CHECKING:  # uvicorn is an extra
    from rofl.report.live.web_server import LivePage

Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="the port of the page; 0 for any free port")]


@app.command("watch", epilog="Example: rofl watch runs/digits-rofl-1")
def watch_command(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run, running or finished")],
    port: Port = 8765,
    host: Annotated[str, typer.Option(help="the address to listen on; other machines need the token")] = ("127.0.0.1"),
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="the file with the token; created if missing")
    ] = None,
) -> None:
    """Show a live view of a run or a federation in a browser: rounds, accuracy, sites, noise, warnings; read-only."""
    check_web()
    from rofl.report.live.page_access import PageAccess, is_loopback, new_token, read_token
    from rofl.report.live.run_watcher import check_watchable
    from rofl.report.live.web_server import open_live_page

    check_watchable(folder)
    if not is_loopback(host):
        if token_file is None and not stderr.is_terminal:  # what is printed may go to a log
            raise UserError("A page for other machines needs a token, and there is no terminal.", "--token-file FILE")
        print_warning(
            "The page and its token are sent unencrypted: use it in a trusted network, or through an SSH tunnel."
        )
    token = read_token(token_file) if token_file else new_token()
    page = open_live_page(folder, PageAccess(host, token), port)
    _print_link(page, f" ({folder}); Ctrl-C ends the page, not the run", token_file)
    try:
        page.serve()
    except KeyboardInterrupt:
        print_message("The page has stopped; the run is not affected.")


@contextmanager
def dashboard(folder: Path, port: int) -> Iterator[None]:
    """Show a run folder on a page of this machine while the block runs.

    Args:
        folder: The run folder, which need not be there yet.
        port: The port; 0 for any that is free.

    Raises:
        UserError: A package is missing, or the port is in use.
    """
    check_web()
    from rofl.report.live.page_access import PageAccess, new_token
    from rofl.report.live.web_server import open_live_page

    page = open_live_page(folder, PageAccess("127.0.0.1", new_token()), port)
    _print_link(page, "")
    with page.in_background():
        yield


def check_web() -> None:
    """Raise a UserError if starlette and uvicorn, which are an extra, are not installed."""
    from importlib.util import find_spec

    if find_spec("starlette") is None or find_spec("uvicorn") is None:
        raise UserError("The live view needs starlette and uvicorn.", "pip install 'fed-noisy-labels[watch]'")


def _print_link(page: "LivePage", note: str, token_file: Path | None = None) -> None:
    """Print where the page is; with the token on a terminal only, since other places keep what is printed."""
    link = page.link if stderr.is_terminal and token_file is None else page.url
    print_message(f"Live view: {link}{note}")
    if token_file is not None:
        print_message(f"The token is in {token_file}.")
