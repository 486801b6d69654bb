"""The entry point: registers all commands, and turns errors into messages and exit codes."""

import os
import re
import sys
from contextlib import suppress
from typing import Annotated

import typer

from rofl.cli import (
    audit,
    benchmark,
    compare,
    data_check,
    datasets,
    demo,
    evaluate,
    export,
    federation_check,
    federation_log,
    join,
    methods,
    predict,
    presets,
    report,
    reproduce,
    resume,
    run,
    serve,
    split,
    watch,
)
from rofl.cli.app import app, print_message, stderr, stdout
from rofl.core.version import __version__
from rofl.errors import Interrupted, UserError

# The commands add themselves to `app` when their modules are imported; --help lists them in this order.
COMMANDS = (
    run,
    resume,
    compare,
    demo,
    watch,
    serve,
    join,
    audit,
    predict,
    evaluate,
    export,
    report,
    split,
    data_check,
    federation_check,
    federation_log,
    reproduce,
    benchmark,
)
_IMPORTED = re.compile(r"(^|[=,])[A-Za-z_][\w.]*:[A-Za-z_]")  # package.module:name, as --method and --set take it
LISTS = (presets, methods, datasets)
_ORDER = [module.__name__.rpartition(".")[2] for module in (*COMMANDS, *LISTS)]
app.registered_commands.sort(key=lambda command: _ORDER.index(command.name) if command.name in _ORDER else len(_ORDER))


def main() -> None:
    """Run the command line.

    A UserError or an unusable disk or file ends with one sentence and exit code 2, Ctrl-C with exit code 130.
    """
    if "" not in sys.path and any(_IMPORTED.search(word) for word in sys.argv[1:]):
        # --method my_methods:Mine finds my_methods.py in the current folder. A name from a run folder or a settings
        # file does not: such files may come from someone else, together with a Python file.
        sys.path.append("")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # report a full disk here, not at exit
    except UserError as error:
        _print_error(str(error))
        sys.exit(2)
    except OSError as error:  # errors without a message of ours: a lost terminal or disk
        _discard_stdout()
        place = f"{error.filename}: " if error.filename else ""
        _print_error(f"{place}{error.strerror or error}.")
        sys.exit(2)
    except Interrupted as stop:
        command = "serve --resume" if (stop.folder / "serve.toml").is_file() else "resume"
        print_message(f"Stopped after round {stop.index}. Continue with: rofl {command} {stop.folder}")
        sys.exit(130)
    except KeyboardInterrupt:
        print_message("Stopped.")
        sys.exit(130)


def _print_error(sentence: str) -> None:
    stderr.print(f"error: {sentence}", style="red", markup=False, highlight=False, soft_wrap=True)


def _discard_stdout() -> None:
    """Discard the buffer of stdout: it cannot be written, and Python would try again at exit."""
    with suppress(OSError, ValueError):  # a test's stdout has no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@app.callback(invoke_without_command=True)
def _without_command(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="print the version")] = False,
) -> None:
    """Federated learning when labels are wrong."""
    if version:
        stdout.print(__version__, highlight=False)
    elif context.invoked_subcommand is None:
        stdout.print("rofl trains one model on data of many owners, whose labels may be wrong, and finds those labels.")
        stdout.print("A first look, about a minute:  [bold]rofl demo[/]")
        stdout.print("Your own data:  [bold]rofl run --data PATH[/]\nAll commands:  [bold]rofl --help[/]")
