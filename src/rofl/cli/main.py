"""The way in: all commands together, and what becomes of a mistake."""

import sys
from typing import Annotated

import typer

from rofl.cli import audit, federating, learning, looking, paper
from rofl.cli.app import app, stderr, stdout
from rofl.errors import Interrupted, UserError

# their commands join `app` as they are imported, and are listed in this order
COMMANDS = (learning, federating, audit, looking, paper)


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and exit code 2."""
    try:
        app()
    except UserError as error:
        stderr.print(f"error: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        sys.exit(2)
    except Interrupted as stop:
        how = "serve --resume" if (stop.folder / "serve.toml").is_file() else "resume"
        stderr.print(f"Stopped after round {stop.index}. Go on with: rofl {how} {stop.folder}", markup=False)
        sys.exit(130)
    except KeyboardInterrupt:
        stderr.print("Stopped.")
        sys.exit(130)


@app.callback(invoke_without_command=True)
def _first_words(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Federated learning when labels are wrong."""
    if version:
        from importlib import metadata  # --help has no need of it

        stdout.print(metadata.version("rofl"), highlight=False)
    elif context.invoked_subcommand is None:
        stdout.print("rofl trains one model on data of many owners, whose labels may be wrong, and finds those labels.")
        stdout.print("A first look, about a minute:  [bold]rofl demo[/]\nAll commands:  [bold]rofl --help[/]")
