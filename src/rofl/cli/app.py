"""The application that all commands belong to, the two consoles, and the options they share."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

app = typer.Typer(
    help="Federated learning when labels are wrong.",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Data of your own.", no_args_is_help=True)
app.add_typer(data_app, name="data")
stderr = Console(stderr=True)
stdout = Console()

What = Annotated[str, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name, or a file of settings")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a setting; may be given again")
]
MethodName = Annotated[str | None, typer.Option("--method", help="short for --set method.name=...")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="short for --set seed=...")]
Out = Annotated[Path | None, typer.Option("--out", help="the folder to write; a new one in runs/ where absent")]
Workers = Annotated[int | None, typer.Option("--workers", min=0, help="client processes; one per core where absent")]
Data = Annotated[Path | None, typer.Option("--data", metavar="PATH", help="data of your own; docs/own-data.md")]
Test = Annotated[Path | None, typer.Option("--test", metavar="PATH", help="its test part; else in PATH or split off")]
Labels = Annotated[Path | None, typer.Option("--labels", metavar="CSV", help="labels of rofl audit --labels-out")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="where data sets lie; else $ROFL_DATA")]
Log = Annotated[
    list[str] | None, typer.Option("--log", metavar="NAME", help="tensorboard or mlflow; may be given again")
]
Dp = Annotated[
    float | None,
    typer.Option(
        "--dp", min=0, metavar="NOISE", help="differential privacy, docs/privacy.md: clip 1 and this much noise"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]
