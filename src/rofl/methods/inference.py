"""Predictions without gradient: evaluation mode, no augmentation, in chunks of a fixed size."""

import torch
from torch import Tensor

from rofl.data.client_dataset import ClientDataset
from rofl.data.image_store import ImageStore, gather
from rofl.data.transforms import Transform
from rofl.models import Network

CHUNK = 125  # images per forward pass: fixed, since bits depend on it, and small enough for the cache


def predict(
    net: Network, pixels: ImageStore, transform: Transform, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Logits (n, K) and features (n, d) of images as they are: evaluation mode, no augmentation, no dropout.

    Of all images, or of some rows; never more than a chunk of them is taken into memory.
    """
    return forward(net.predictor(), pixels, transform, rows)


@torch.no_grad()
def forward(
    predictor: Network, pixels: ImageStore, transform: Transform, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The same, by a `Network.predictor` that is there already."""
    count = len(pixels) if rows is None else len(rows)
    chunks = [slice(start, start + CHUNK) for start in range(0, count, CHUNK)]
    images = (pixels[chunk] if rows is None else gather(pixels, rows[chunk]) for chunk in chunks)
    parts = [predictor(transform(image.to(predictor.device))) for image in images]
    if not parts:
        sizes = predictor.classes, predictor.feature_size
        return torch.empty(0, sizes[0], device=predictor.device), torch.empty(0, sizes[1], device=predictor.device)
    logits, features = (torch.cat(column) for column in zip(*parts, strict=True))
    return logits, features


def predict_client(net: Network, data: ClientDataset) -> tuple[Tensor, Tensor]:
    """`predict` over one client's samples, in their order."""
    return predict(net, data.pixels, data.transform, data.rows)
