"""The options that several commands share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rofl.errors import UserError

if TYPE_CHECKING:  # its package imports torch
    from rofl.config.presets.effort import Effort

What = Annotated[str, typer.Argument(metavar="[PRESET|FILE.toml]", help="a preset's name, or a file of settings")]
FinishedRun = Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a finished run")]
Sets = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="change a setting; repeatable")]
MethodName = Annotated[
    str | None, typer.Option("--method", help="a method's name, or package.module:Class; --set method.name=...")
]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="short for --set seed=...")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="number of runs each, with seeds 0, 1, ...")]
Out = Annotated[Path | None, typer.Option("--out", help="the folder to write; a new one in runs/ if omitted")]
Workers = Annotated[int | None, typer.Option("--workers", min=0, help="client processes; one per core if omitted")]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="PATH", help="your data: a folder of images, or a CSV, Parquet or .npz file"),
]
Test = Annotated[
    Path | None, typer.Option("--test", metavar="PATH", help="its test part; default: in PATH, or held out")
]
Labels = Annotated[Path | None, typer.Option("--labels", metavar="CSV", help="labels of rofl audit --labels-out")]
Quick = Annotated[bool, typer.Option("--quick", help="with --data: a first look, about 3 minutes on two cores")]
Thorough = Annotated[bool, typer.Option("--thorough", help="with --data: the paper's network and rounds; hours")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="the folder of data sets; default: $ROFL_DATA")]
Log = Annotated[list[str] | None, typer.Option("--log", metavar="NAME", help="tensorboard or mlflow; repeatable")]
Dp = Annotated[
    float | None,
    typer.Option(
        "--dp", min=0, metavar="NOISE", help="differential privacy with this noise multiplier, and updates clipped to 1"
    ),
]
Insecure = Annotated[bool, typer.Option("--insecure", help="no TLS and no keys: on this machine only")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, help="parallel cells; default: one per core, 1 at scale paper")
]
PlanOnly = Annotated[bool, typer.Option("--plan", help="print the estimated cost, and run nothing")]
Json = Annotated[bool, typer.Option("--json", help="print the result as JSON")]


def effort(quick: bool, thorough: bool, data: Path | None) -> "Effort":
    """Return the effort for --quick and --thorough.

    Args:
        quick: Whether --quick was passed.
        thorough: Whether --thorough was passed.
        data: The path of --data.

    Raises:
        UserError: both were passed, or one of them without --data.
    """
    if quick and thorough:
        raise UserError("--quick and --thorough exclude each other.", "one of them")
    if (quick or thorough) and data is None:
        raise UserError("--quick and --thorough choose settings for --data PATH.", "--set KEY=VALUE")
    return "quick" if quick else "thorough" if thorough else "default"


def check_flower() -> None:
    """Raise a UserError if Flower, which is an extra, is not installed."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise UserError("Flower is not installed.", "pip install 'fed-noisy-labels[flower]'")
