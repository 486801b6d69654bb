"""`rofl predict`: the classes of new samples, by the model of a run."""

from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import app, print_message, print_warning
from rofl.cli.options import DataDir, FinishedRun
from rofl.errors import UserError


@app.command("predict", epilog="Example: rofl predict runs/photos new-photos --out predictions.csv")
def predict_command(
    run: FinishedRun,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="an image, a folder of images, or a .csv, .parquet or .npz file")
    ],
    out: Annotated[Path | None, typer.Option("--out", metavar="CSV", help="the file to write; default: stdout")] = None,
    data_dir: DataDir = None,
) -> None:
    """Predict the classes of new samples, which need no labels, with the probability of each class, as CSV."""
    if out is not None and out.exists():
        raise UserError(f"{out} already exists.", "another --out")  # before the predictions starts, which is slow
    from rofl.cli.progress import decoding_bar
    from rofl.data.atomic import check_place
    from rofl.training.saved_model.predict_data import predict_data

    check_place(out)
    with decoding_bar(verb="predicting", noun="samples") as progress:
        predictions = predict_data(run, path, data_dir=data_dir, progress=progress)
    for name, reason in predictions.unreadable.items():
        print_warning(f"left out, since it cannot be read: {name} ({reason})")
    if out is None:
        typer.echo(predictions.to_csv(), nl=False)
    else:
        predictions.write_csv(out)
        print_message(f"{len(predictions.samples)} predictions: {out}")
