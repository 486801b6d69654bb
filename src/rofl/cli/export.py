"""`rofl export`: a run's model for other programs."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from rofl.cli.app import app, print_message, print_warning, stdout
from rofl.cli.options import DataDir, FinishedRun


class Format(Enum):
    """The formats of exports, as `rofl.training.saved_model.export_model.ExportFormat` has them."""

    ONNX = "onnx"
    TORCH = "torch"
    SAFETENSORS = "safetensors"
    HF = "hf"


@app.command("export", epilog="Example: rofl export runs/photos --format onnx --out photos-onnx")
def export_command(
    run: FinishedRun,
    format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="onnx; torch: a torch.export program; safetensors: one file; hf: a Hugging Face hub folder",
        ),
    ] = Format.ONNX,
    out: Annotated[Path | None, typer.Option("--out", help="a new folder; RUN/export-FORMAT if omitted")] = None,
    name_sites: Annotated[bool, typer.Option("--name-sites", help="name each client in the model card")] = False,
    data_dir: DataDir = None,
) -> None:
    """Write a run's model for other programs, with a model card; onnx and torch have the preprocessing inside."""
    from rofl.training.saved_model.export_model import export_model
    from rofl.training.saved_model.traced_export import ROUNDING

    exported = export_model(run, format.value, out, name_sites=name_sites, data_dir=data_dir)
    if exported.difference is not None:
        much = f"{exported.difference:.1e} of the largest one"
        print_message(f"compared with the network on random inputs: logits differ by {much} at most")
        if exported.difference > ROUNDING:
            print_warning("That is more than rounding: compare predictions before you use the file.")
    print_message(f"The model card: {exported.card}")
    stdout.print(str(exported.model), markup=False, highlight=False, soft_wrap=True)
