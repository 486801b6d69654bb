"""A model as a plain `torch.nn.Module` from raw samples to logits, with its preprocessing."""

import torch
from torch import Tensor, nn

from rofl.data.preprocessing import AnyPreprocessing, ImagePreprocessing, TablePreprocessing
from rofl.data.transforms import center_crop
from rofl.data.user.table_columns import FARTHEST, CategoryColumn, NumberColumn
from rofl.models import Network


class ImageModule(nn.Module):
    """(B, C, H, W) pixels from 0 to 255, in any number type -> logits (B, K).

    Args:
        network: (B, C, H, W) inputs -> logits (B, K).
        form: how pixels become its inputs.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, form: ImagePreprocessing) -> None:
        super().__init__()
        self.network = network
        self.window = form.window
        means, stds = (torch.tensor(values).view(1, -1, 1, 1) for values in (form.mean, form.std))
        self.register_buffer("scale", 1 / (255 * stds))  # (1, C, 1, 1)
        self.register_buffer("shift", means / stds)

    def forward(self, pixels: Tensor) -> Tensor:
        """Return logits (B, K)."""
        cut = center_crop(pixels, self.window) if self.window else pixels
        logits: Tensor = self.network(cut.to(torch.float32) * self.scale - self.shift)
        return logits


class TableModule(nn.Module):
    """(B, F) float64 rows -> logits (B, K), with the columns in the order of `columns`.

    A number is not scaled, NaN if it is missing; a category is the index of its value in `values`, -1 if it is missing
    or unknown. `TrainedModel.codes` returns such rows.

    Args:
        network: (B, C, H, W) inputs -> logits (B, K).
        form: how rows become its inputs.
    """

    def __init__(self, network: nn.Module, form: TablePreprocessing) -> None:
        super().__init__()
        self.network = network
        used = [] if form.encoder is None else form.encoder.used
        self.columns = tuple(column.name for column in used)
        self.values = {column.name: column.values for column in used if isinstance(column, CategoryColumn)}
        self.features = nn.ModuleList(
            _Number(column) if isinstance(column, NumberColumn) else _Category(len(column.values)) for column in used
        )

    def forward(self, rows: Tensor) -> Tensor:
        """Return logits (B, K)."""
        encoded = rows
        if self.columns:
            encoded = torch.cat([layer(rows[:, place]) for place, layer in enumerate(self.features)], dim=1)
        logits: Tensor = self.network(encoded.to(torch.float32)[:, :, None, None])
        return logits


class _Number(nn.Module):
    """(B,) numbers -> (B, 1) standardised; a missing one becomes 0, the mean."""

    mean: Tensor
    scale: Tensor

    def __init__(self, column: NumberColumn) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(column.mean, dtype=torch.float64))
        self.register_buffer("scale", torch.tensor(column.scale, dtype=torch.float64))

    def forward(self, numbers: Tensor) -> Tensor:
        known = torch.where(numbers.isnan(), self.mean, numbers)
        return ((known - self.mean) / self.scale).clamp(-FARTHEST, FARTHEST)[:, None]


class _Category(nn.Module):
    """(B,) indices of values -> (B, V) one-hot; zeros for other numbers."""

    places: Tensor

    def __init__(self, values: int) -> None:
        super().__init__()
        self.register_buffer("places", torch.arange(values, dtype=torch.float64))

    def forward(self, codes: Tensor) -> Tensor:
        return (codes[:, None] == self.places).to(codes.dtype)


class TextModule(nn.Module):
    """(B, length) int64 word indices, 0 as padding -> logits (B, K).

    Args:
        network: (B, length, 1, 1) inputs -> logits (B, K).
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, words: Tensor) -> Tensor:
        """Return logits (B, K)."""
        logits: Tensor = self.network(words.to(torch.float32)[:, :, None, None])
        return logits


def raw_module(network: Network, form: AnyPreprocessing) -> nn.Module:
    """Return the module for a kind of samples, in evaluation mode."""
    inner = network.logits_only()
    if isinstance(form, ImagePreprocessing):
        return ImageModule(inner, form).eval()
    return (TableModule(inner, form) if isinstance(form, TablePreprocessing) else TextModule(inner)).eval()
