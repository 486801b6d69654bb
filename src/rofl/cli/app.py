"""The Typer application, the two consoles, and the functions that print.

Progress and messages go to stderr; the result of a command goes to stdout.
"""

import json
from inspect import signature
from typing import Any

import typer
from click import Context, NoSuchOption
from rich.console import Console
from rich.table import Table
from typer.core import TyperArgument, TyperGroup

from rofl.errors import UserError, one_line

# Options of other programs, and the settings for them; all settings are in docs/settings.md.
SETTINGS_OF_OPTIONS = {
    "--batch": "method.batch",
    "--batch-size": "method.batch",
    "--clients": "clients",
    "--cohort": "cohort",
    "--epochs": "method.epochs",
    "--learning-rate": "method.lr",
    "--lr": "method.lr",
    "--model": "model.name",
    "--momentum": "method.momentum",
    "--noise": "noise.ratio",
    "--partition": "data.partition",
    "--patience": "patience",
    "--rounds": "rounds",
    "--tau": "method.tau",
    "--width": "model.width",
}


class _Group(TyperGroup):
    """A command group that keeps the help of arguments, which typer 0.20 loses with click 8.5."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for command in self.commands.values():
            described = signature(command.callback).parameters if command.callback else {}
            for argument in command.params:
                if isinstance(argument, TyperArgument) and argument.name in described:
                    (info,) = described[argument.name].annotation.__metadata__  # of Annotated, as all of ours are
                    argument.help = info.help


class _Commands(_Group):
    """All commands; for a setting used as an option, such as --rounds, it suggests --set. Ctrl-C is confirmed."""

    def invoke(self, ctx: Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # typer would end without a word
            print_message("Stopped.")
            raise typer.Exit(130) from None
        except NoSuchOption as error:
            takes_settings = error.ctx is not None and any(each.name == "sets" for each in error.ctx.command.params)
            setting = SETTINGS_OF_OPTIONS.get(error.option_name) if takes_settings else None
            if setting is None:
                raise
            raise UserError(f"There is no option {error.option_name}.", f"--set {setting}=VALUE") from None


app = typer.Typer(
    cls=_Commands,
    suggest_commands=False,  # click does so itself
    help="Federated learning when labels are wrong.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(cls=_Group, help="Check your data before a run.", no_args_is_help=True)
app.add_typer(data_app, name="data")
federation_app = typer.Typer(
    cls=_Group, help="Check the health of a coordinator or a site, and read its log.", no_args_is_help=True
)
app.add_typer(federation_app, name="federation")
stderr = Console(stderr=True)
stdout = Console()


def print_message(text: str) -> None:
    """Print a message on stderr literally: no markup, no colours, no added line breaks.

    It may contain text from a site or a coordinator, so control characters are escaped.
    """
    stderr.print(_without_codes(text), markup=False, highlight=False, soft_wrap=True)


def print_warning(text: str) -> None:
    """Print a warning on stderr, in yellow."""
    stderr.print(f"warning: {_without_codes(text)}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _without_codes(text: str) -> str:
    return "\n".join(map(one_line, text.split("\n")))


def print_json(content: object) -> None:
    """Print a result on stdout as JSON."""
    stdout.print_json(json.dumps(content))


def print_listing(about: dict[str, str], kind: str, as_json: bool) -> None:
    """Print names with a line about each.

    Args:
        about: Name -> the line.
        kind: The heading of the names' column.
        as_json: Whether to print JSON instead of a table.
    """
    if as_json:
        print_json(about)
        return
    table = Table(kind, "what it is")
    for name, line in about.items():
        table.add_row(name, line)
    stdout.print(table)


def rough_duration(seconds: float) -> str:
    """Return an estimated time, rounded to one unit.

    >>> [rough_duration(value) for value in (0.2, 8.25, 75, 640, 7260, 190_000)]
    ['1 s', '8 s', '1 min', '11 min', '2 h', '2 days']
    """
    for size, unit, most in ((1, "s", 60), (60, "min", 90), (3600, "h", 36)):
        if seconds < most * size:
            return f"{max(1, round(seconds / size))} {unit}"
    return f"{round(seconds / 86_400)} days"


def summary_line(documented: object) -> str:
    """Return the first line of a docstring; "" if there is none."""
    return (documented.__doc__ or "").partition("\n")[0]
