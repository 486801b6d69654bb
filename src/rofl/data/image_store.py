"""Images that stay in their files and are decoded when they are asked for: for sets that do not fit in memory."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from rofl.core.tensors import Tensors
from rofl.errors import UserError

_MODES = {1: "L", 3: "RGB"}


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files below a folder, to be indexed like the uint8 tensor (N, C, side, side) that they would make.

    Decoding is one image after the other: with a worker process per core there is no core left for threads.
    """

    root: str
    names: Tensor  # (bytes,) uint8: all names below the root in one, since each worker would copy a million strings
    ends: Tensor  # (N + 1,) int64: name i is names[ends[i] : ends[i + 1]]
    side: int
    channels: int  # 1: grey, 3: colours

    @classmethod
    def of(cls, root: str | os.PathLike[str], names: Iterable[str], side: int, channels: int) -> "ImageFiles":
        """The files of these names, in this order."""
        encoded = [os.fsencode(name) for name in names]
        ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        joined = np.frombuffer(b"".join(encoded), dtype=np.uint8).copy()
        return cls(os.fspath(root), torch.from_numpy(joined), torch.from_numpy(ends), side, channels)

    def __len__(self) -> int:
        return len(self.ends) - 1

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Of the tensor that all images would make."""
        return len(self), self.channels, self.side, self.side

    def path(self, row: int) -> str:
        """Where an image lies."""
        start, stop = self.ends[row : row + 2].tolist()
        return os.path.join(self.root, os.fsdecode(self.names[start:stop].numpy().tobytes()))

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        """Decode some images, (B, C, side, side) uint8, or one, (C, side, side)."""
        index = index.cpu() if isinstance(index, Tensor) else index
        rows = torch.arange(len(self))[index]  # whatever indexes a tensor; next to decoding it costs nothing
        pixels = np.empty((rows.numel(), self.side, self.side, self.channels), dtype=np.uint8)
        for place, row in enumerate(rows.flatten().tolist()):
            pixels[place] = decode_image(self.path(row), self.side, self.channels)
        images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()  # laid out as in memory: bits depend on it
        return images.reshape(*rows.shape, *self.shape[1:])

    def part(self, piece: slice) -> "ImageFiles":
        """The files of a slice without a step; nothing is decoded."""
        start, stop, step = piece.indices(len(self))
        if step != 1:
            raise ValueError(f"a part is one piece, not every {step}th image")
        ends = self.ends[start : max(start, stop) + 1]
        first, last = ends[0].item(), ends[-1].item()
        return replace(self, names=self.names[first:last], ends=ends - first)


ImageStore: TypeAlias = Tensor | ImageFiles  # (N, C, H, W) uint8, in memory or in files


def gather(pixels: ImageStore, rows: Tensor) -> Tensor:
    """Copies of some images; where they are in memory, ten times as fast as indexing them."""
    return pixels.index_select(0, rows) if isinstance(pixels, Tensor) else pixels[rows]


def slice_images(pixels: ImageStore, piece: slice) -> ImageStore:
    """A slice of the images, neither copied nor decoded."""
    return pixels[piece] if isinstance(pixels, Tensor) else pixels.part(piece)


def store_to_device(pixels: ImageStore, device: torch.device) -> ImageStore:
    """The images on a device; those in files stay where they are, and follow batch by batch."""
    return pixels.to(device) if isinstance(pixels, Tensor) else pixels


def store_to_tensors(name: str, pixels: ImageStore) -> Tensors:
    """Images as named tensors, all of them, so that they can lie in shared memory."""
    if isinstance(pixels, Tensor):
        return {name: pixels}
    root = torch.from_numpy(np.frombuffer(os.fsencode(pixels.root), dtype=np.uint8).copy())
    form = torch.tensor([pixels.side, pixels.channels])
    return {f"{name}/names": pixels.names, f"{name}/ends": pixels.ends, f"{name}/root": root, f"{name}/form": form}


def store_from_tensors(name: str, tensors: Tensors) -> ImageStore:
    """The inverse of `to_tensors`, on the same memory."""
    if name in tensors:
        return tensors[name]
    names, ends, root, form = (tensors[f"{name}/{field}"] for field in ("names", "ends", "root", "form"))
    side, channels = form.tolist()
    return ImageFiles(os.fsdecode(root.numpy().tobytes()), names, ends, side, channels)


def decode_image(path: str, side: int, channels: int) -> np.ndarray:
    """One image file as (side, side, C) uint8, squeezed to a square where it is none."""
    from PIL import Image  # workers whose images lie in memory do without

    try:
        with Image.open(path) as opened:
            opened.draft(_MODES[channels], (side, side))  # a JPEG is decoded at 1/2, 1/4 or 1/8 of its size
            image: Image.Image = opened
            if image.mode.startswith("I"):  # 16 bits of grey: PIL's own conversion clips it in some versions
                image = Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8))
            if image.mode == "P":
                image = image.convert("RGBA")  # PIL warns of a transparent palette otherwise
            small = image.convert(_MODES[channels]).resize((side, side), Image.Resampling.BILINEAR)
            return np.asarray(small).reshape(side, side, channels)
    except Exception as error:  # PIL raises what its decoders do: OSError, SyntaxError, struct.error, ...
        raise UserError(f"The image {path} cannot be read ({type(error).__name__}).", "fetch it again") from error
