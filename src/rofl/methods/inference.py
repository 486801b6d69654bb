"""Predictions without gradient: evaluation mode, no augmentation, in chunks of a fixed size."""

import torch
from torch import Tensor

from rofl.data.client_dataset import ClientDataset
from rofl.data.image_store import ImageStore, gather
from rofl.data.transforms import Transform
from rofl.models import Network

CHUNK = 125  # images per forward pass; fixed because the bits depend on it, and small enough for the cache


def predict(
    net: Network, pixels: ImageStore, transform: Transform, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return logits (n, K) and features (n, d) of images: evaluation mode, no augmentation, one chunk at a time.

    Args:
        net: the network, which is not changed.
        pixels: the images, in memory or in files.
        transform: from pixels to inputs.
        rows: which images; all of them if None.
    """
    return forward(net.predictor(), pixels, transform, rows)


@torch.no_grad()
def forward(
    predictor: Network, pixels: ImageStore, transform: Transform, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the same as `predict`, for a `Network.predictor`.

    Args:
        predictor: in evaluation mode.
        pixels: the images.
        transform: from pixels to inputs.
        rows: which images; all of them if None.
    """
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
    """Return logits (n, K) and features (n, d) of a client's samples, in their order."""
    return predict(net, data.pixels, data.transform, data.rows)
