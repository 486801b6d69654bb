"""Class probabilities of a simple model, for label noise that depends on the sample."""

import torch
import torch.nn.functional as F
from torch import Tensor

from rofl.core.instance_noise import linear_probabilities
from rofl.core.rng import generator
from rofl.core.threads import single_thread
from rofl.data.dataset import Dataset
from rofl.data.image_store import ImageStore, slice_images

_SIDE = 12  # pixels of the copies that the model sees
_CHUNK = 1000  # images that are decoded at a time


def confusion_probabilities(images: Dataset, seed: int) -> Tensor:
    """Return probabilities (N, K) of a linear model on small copies of the training images.

    A table's columns are used as they are. On one thread: labels must not depend on the machine's cores.

    Args:
        images: the data set with its true labels.
        seed: of the run.
    """
    count = len(images.train_labels)
    with single_thread():
        features = torch.cat([_features(images.train, start, start + _CHUNK) for start in range(0, count, _CHUNK)])
        return linear_probabilities(
            features, images.train_labels, len(images.classes), generator(seed, "noise", "confusions")
        )


def _features(store: ImageStore, start: int, stop: int) -> Tensor:
    """Return the features (n, d) of a slice of the samples."""
    pixels = slice_images(store, slice(start, stop))[:].float()
    if max(pixels.shape[2:]) > _SIDE:
        pixels = F.adaptive_avg_pool2d(pixels, (min(_SIDE, pixels.shape[2]), min(_SIDE, pixels.shape[3])))
    return pixels.flatten(start_dim=1)
