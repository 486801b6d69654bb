"""Samples in their original form: image files in full size, arrays, or the cells of a table.

A data set holds network inputs: small squares and encoded features. Reviewers of labels need the originals.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rofl.data.dataset import Dataset
from rofl.data.federated import FederatedDataset
from rofl.data.image_store import ImageFiles
from rofl.data.user.samples import Content
from rofl.data.user.source import list_samples

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Originals:
    """The training samples of a data set in their original form, by their row."""

    images: Dataset
    contents: Mapping[str, Content]  # by the sample's name; empty if the data is not a path of the user's
    columns: tuple[str, ...] = ()  # of a table

    def file(self, row: int) -> Path | None:
        """Return the image file of a sample; None if the image is part of an array, or the sample of a table."""
        content = self._content(row)
        return content if isinstance(content, Path) else None

    def picture(self, row: int) -> "Image.Image":
        """Decode the image of a sample in its own size: upright, 8-bit grey or RGB.

        Raises:
            Exception: any error of PIL's decoders for a damaged file.
        """
        from rofl.data.image_io import open_picture  # imports PIL, which training does not need

        content = self._content(row)
        if isinstance(content, tuple):
            raise ValueError("the sample is a row of a table")
        return open_picture(content)

    def cells(self, row: int) -> dict[str, str]:
        """Return the cells of a table's row by column; empty for images."""
        content = self._content(row) if self.columns else ()
        return dict(zip(self.columns, content, strict=True)) if isinstance(content, tuple) else {}

    def _content(self, row: int) -> Content:
        if self.contents:
            return self.contents[self.images.ids[row]]
        train = self.images.train
        if isinstance(train, ImageFiles):
            return Path(train.path(row))
        pixels: np.ndarray = train[row].permute(1, 2, 0).contiguous().numpy()  # (H, W, C)
        return pixels


def find_originals(federated: FederatedDataset) -> Originals:
    """Return the originals of a data set; the user's files are listed but not decoded.

    Raises:
        UserError: the user's data was moved or deleted.
    """
    data = federated.spec.data
    if not data.path:
        return Originals(federated.images, {})
    listing = list_samples(data.source)
    contents = {sample.id: sample.content for sample in listing.samples}
    return Originals(federated.images, contents, listing.features)
