"""`rofl report`: one page of finished runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rofl.cli.app import app, stdout
from rofl.cli.options import DataDir
from rofl.errors import UserError

if TYPE_CHECKING:  # it imports torch
    from rofl.report.large_pictures import ImageMode


@app.command("report", epilog="Example: rofl report runs/digits-rofl-1 runs/digits-plain-1 --out both.html")
def report_command(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="run folders")],
    out: Annotated[Path | None, typer.Option("--out", help="the page; report.html in the first folder")] = None,
    site: Annotated[str | None, typer.Option("--site", metavar="NAME", help="with samples of this client only")] = None,
    server: Annotated[bool, typer.Option("--server", help="without any sample")] = False,
    link_images: Annotated[bool, typer.Option("--link-images", help="link to the image files, in full size")] = False,
    embed: Annotated[bool, typer.Option("--embed", help="embed larger copies of the images")] = False,
    data_dir: DataDir = None,
) -> None:
    """Write one page about one or several finished runs, or about an audit of new data."""
    if link_images and embed:
        raise UserError("--link-images and --embed exclude each other.", "one of them")
    if server and site is not None:
        raise UserError("--site and --server exclude each other.", "one of them, then the other")
    from rofl.data.atomic import check_place
    from rofl.report import Audience, write_report

    check_place(out)
    images: ImageMode = "link" if link_images else "embed" if embed else "thumbnails"
    page = write_report(folders, out, data_dir, Audience(site, server), images)
    stdout.print(str(page), markup=False, highlight=False, soft_wrap=True)
