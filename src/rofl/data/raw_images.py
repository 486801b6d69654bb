"""Raw images for a trained model: paths, arrays, tensors and PIL images of any size become pixels of its size."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rofl.data.pixel_types import pixels_to_uint8
from rofl.data.preprocessing import ImagePreprocessing
from rofl.errors import UserError

if TYPE_CHECKING:
    from PIL import Image

RawImage: TypeAlias = "Path | bytes | np.ndarray | Image.Image"  # a file, its content, or (H, W[, C]) uint8

_FORMS = "paths, or arrays of pixels (N, H, W), (N, H, W, C) or (N, C, H, W), as uint8 or from 0 to 1"
_CHANNELS = (1, 2, 3, 4)  # grey, grey with transparency, colours, colours with transparency


@dataclass(frozen=True, eq=False)
class RawImages:
    """Images of any size, decoded lazily when they are sliced.

    Attributes:
        images: their files or pixels.
        form: the size and the channels to decode them to.
        unreadable: receives the reason for each unreadable row, whose pixels are then 0. None to raise an error
            instead.
    """

    images: Sequence[RawImage]
    form: ImagePreprocessing
    unreadable: dict[int, str] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: slice) -> Tensor:
        """Return the pixels of some images, (B, C, H, W) uint8; they are decoded in threads.

        Raises:
            UserError: an image cannot be read, and `unreadable` is None.
        """
        from rofl.data.user.decode import decoding_threads  # imports PIL

        with decoding_threads() as pool:
            decoded = list(pool.map(self._decode, range(len(self))[rows]))
        pixels = np.stack(decoded) if decoded else np.empty((0, *self._size, self.form.channels), np.uint8)
        return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()

    @property
    def _size(self) -> tuple[int, int]:
        return self.form.height, self.form.width

    def _decode(self, row: int) -> np.ndarray:
        from rofl.data.image_io import decode_image, describe_error

        image = self.images[row]
        try:
            return decode_image(image, self._size, self.form.channels)
        except Exception as error:  # PIL passes on any error of its decoders: OSError, SyntaxError, struct.error, ...
            if self.unreadable is not None:
                self.unreadable[row] = describe_error(error)
                return np.zeros((*self._size, self.form.channels), np.uint8)
            what = f"The image {image}" if isinstance(image, Path) else "An image"
            raise UserError(f"{what} cannot be read: {describe_error(error)}.", "leave it out") from error


def read_raw_images(inputs: Any, form: ImagePreprocessing) -> RawImages | Tensor:
    """Return images in any form as pixels, or as a lazy store that can be sliced.

    Args:
        inputs: a path or several; an array or tensor of one or several images; several arrays, tensors or PIL
            images, of different sizes if need be.
        form: the size and the channels that the network takes.

    Returns:
        (N, C, H, W) uint8 if the pixels fit already.

    Raises:
        UserError: the inputs have another form.
    """
    if isinstance(inputs, RawImages):
        return inputs
    if isinstance(inputs, np.ndarray | Tensor) and inputs.ndim >= 2:
        return _from_array(inputs, form)
    one = isinstance(inputs, str | os.PathLike | bytes) or hasattr(inputs, "convert")  # a PIL image
    try:
        several = [inputs] if one else list(inputs)
    except TypeError:
        raise UserError(f"Images cannot be read from a {type(inputs).__name__}.", _FORMS) from None
    return RawImages([_one_image(each, form) for each in several], form)


def _one_image(image: Any, form: ImagePreprocessing) -> RawImage:
    """Return one image of a list in a form that can be decoded."""
    if isinstance(image, str | os.PathLike):
        path = Path(image)
        if not path.is_file():
            raise UserError(f"There is no image {path}.", "the path of an image file")
        return path
    if isinstance(image, bytes) or hasattr(image, "convert"):  # the content of a file, or a PIL image
        return image  # type: ignore[no-any-return]
    if not isinstance(image, np.ndarray | Tensor):
        raise UserError(f"An image cannot be read from a {type(image).__name__}.", _FORMS)
    pixels = _images_last(pixels_to_uint8(_as_array(image)), isinstance(image, Tensor), form)
    if len(pixels) != 1:
        raise UserError(f"One image of the list has the shape {tuple(image.shape)}.", "(H, W) or (H, W, C)")
    return pixels[0]  # type: ignore[no-any-return]


def _from_array(images: np.ndarray | Tensor, form: ImagePreprocessing) -> RawImages | Tensor:
    pixels = _images_last(pixels_to_uint8(_as_array(images)), isinstance(images, Tensor), form)  # (N, H, W, C)
    if pixels.shape[1:] == (form.height, form.width, form.channels):
        return torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy())  # the caller's memory may be read-only
    return RawImages(list(pixels), form)


def _as_array(images: np.ndarray | Tensor) -> np.ndarray:
    return images.detach().cpu().numpy() if isinstance(images, Tensor) else images


def _images_last(array: np.ndarray, channels_first: bool, form: ImagePreprocessing) -> np.ndarray:
    """Return one or several images as (N, H, W, C).

    Args:
        array: (H, W), (N, H, W), (H, W, C), (C, H, W), (N, H, W, C) or (N, C, H, W).
        channels_first: whether to read (C, H, W) if both layouts are possible, as for tensors.
        form: what the network takes: three planes of a network for colours are one image.
    """
    if array.ndim == 2:
        return array[None, :, :, None]
    if array.ndim == 3:
        planes = channels_first and array.shape[0] == form.channels > 1
        if planes:
            return array.transpose(1, 2, 0)[None]
        return array[None] if array.shape[2] in _CHANNELS else array[:, :, :, None]
    if array.ndim == 4:
        first, last = array.shape[1] in _CHANNELS, array.shape[3] in _CHANNELS
        if first and (channels_first or not last):
            return array.transpose(0, 2, 3, 1)
        if last:
            return array
    raise UserError(f"Images have the shape {array.shape}.", _FORMS)
