"""Images that stay in their files and are decoded on access, for sets that do not fit in memory.

`ImageStore` is the common type of both: a tensor in memory, or `ImageFiles`.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rofl.core.tensors import Tensors
from rofl.errors import UserError


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files in a folder, indexed like the uint8 tensor (N, C, side, side) of their pixels.

    Images are decoded one by one: with a worker process per core, no core is left for threads.
    """

    root: str
    names: Tensor  # (bytes,) uint8: all names below the root in one, since each worker would copy a million strings
    ends: Tensor  # (N + 1,) int64: name i is names[ends[i] : ends[i + 1]]
    side: int  # pixels
    channels: int  # 1: grey, 3: colours

    @classmethod
    def of(cls, root: str | os.PathLike[str], names: Iterable[str], side: int, channels: int) -> "ImageFiles":
        """Create a store of files, without reading them.

        Args:
            root: the folder that the names are relative to.
            names: the files, in the order of the samples.
            side: the height and width to which each image is decoded.
            channels: 1 for grey, 3 for colours.
        """
        encoded = [os.fsencode(name) for name in names]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        joined = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
        return cls(os.fspath(root), torch.from_numpy(joined), torch.from_numpy(ends), side, channels)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape of the tensor that all decoded images would make, (N, C, side, side)."""
        return len(self), self.channels, self.side, self.side

    def path(self, row: int) -> str:
        """Return the path of an image."""
        start, stop = self.ends[row : row + 2].tolist()
        return os.path.join(self.root, os.fsdecode(self.names[start:stop].numpy().tobytes()))

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        """Decode some images, (B, C, side, side) uint8, or one, (C, side, side).

        Raises:
            UserError: an image cannot be read.
        """
        index = index.cpu() if isinstance(index, Tensor) else index
        rows = torch.arange(len(self))[index]  # accepts any tensor index; decoding costs far more
        pixels = np.empty((rows.numel(), self.side, self.side, self.channels), dtype=np.uint8)
        for place, row in enumerate(rows.flatten().tolist()):
            pixels[place] = self._decode(row)
        images = (
            torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
        )  # same layout as in memory: bits depend on it
        return images.reshape(*rows.shape, *self.shape[1:])

    def slice_rows(self, rows: slice) -> "ImageFiles":
        """Return the files of a slice without a step; nothing is decoded."""
        start, stop, step = rows.indices(len(self))
        if step != 1:
            raise ValueError(f"a slice of image files has step 1, not {step}")
        ends = self.ends[start : max(start, stop) + 1]
        first, last = ends[0].item(), ends[-1].item()
        return replace(self, names=self.names[first:last], ends=ends - first)

    def _decode(self, row: int) -> np.ndarray:
        from rofl.data.image_io import decode_image  # imports PIL, which workers with images in memory do not need

        path = self.path(row)
        try:
            return decode_image(Path(path), self.side, self.channels)
        except Exception as error:  # PIL passes on any error of its decoders: OSError, SyntaxError, struct.error, ...
            raise UserError(f"The image {path} cannot be read ({type(error).__name__}).", "fetch it again") from error


ImageStore: TypeAlias = Tensor | ImageFiles  # (N, C, H, W) uint8, in memory or in files


def gather(images: ImageStore, rows: Tensor) -> Tensor:
    """Return copies of some images; in memory, `index_select` is ten times as fast as indexing."""
    return images.index_select(0, rows) if isinstance(images, Tensor) else images[rows]


def slice_images(images: ImageStore, rows: slice) -> ImageStore:
    """Return a slice of the images, neither copied nor decoded."""
    return images[rows] if isinstance(images, Tensor) else images.slice_rows(rows)


def store_to_device(images: ImageStore, device: torch.device) -> ImageStore:
    """Return the images on a device; those in files stay there and are moved batch by batch."""
    return images.to(device) if isinstance(images, Tensor) else images


def store_to_tensors(name: str, images: ImageStore) -> Tensors:
    """Return an image store as named tensors, which can lie in shared memory.

    Files become four tensors (names, ends, root, side and channels), so workers share them without pickling.
    """
    if isinstance(images, Tensor):
        return {name: images}
    root = torch.from_numpy(np.frombuffer(os.fsencode(images.root), dtype=np.uint8).copy())
    form = torch.tensor([images.side, images.channels])
    return {f"{name}/names": images.names, f"{name}/ends": images.ends, f"{name}/root": root, f"{name}/form": form}


def store_from_tensors(name: str, tensors: Tensors) -> ImageStore:
    """Return the image store that `store_to_tensors` was given, on the same memory."""
    if name in tensors:
        return tensors[name]
    names, ends, root, form = (tensors[f"{name}/{field}"] for field in ("names", "ends", "root", "form"))
    side, channels = form.tolist()
    return ImageFiles(os.fsdecode(root.numpy().tobytes()), names, ends, side, channels)
