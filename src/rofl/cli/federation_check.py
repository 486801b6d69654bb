"""`rofl federation check`: checks whether a coordinator or a site is running, for health checks."""

from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import federation_app, stdout


@federation_app.command("check", epilog="Example: rofl federation check runs/together")
def federation_check_command(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="the run folder of rofl serve or rofl join")],
) -> None:
    """Check whether the coordinator or the site of a run folder is running; exit code 2 if not."""
    from rofl.federation.health import check_health

    stdout.print(check_health(path), markup=False, highlight=False, soft_wrap=True)
