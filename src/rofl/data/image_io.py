"""Reads one image from a file or an array: its header, and its pixels as uint8.

Published sets that are streamed from disk (`rofl.data.image_store`) and user data (`rofl.data.user`) are both decoded
here, so the same file gives the same pixels in both. This module imports PIL: workers whose images lie in memory must
not import it.

Files are untrusted. One of a few kilobytes can declare an image of gigabytes, and an unusual format can start another
program or an old decoder; both are refused from the header, before decoding.
"""

import errno
import hashlib
import io
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from rofl.data.dicom import UnsupportedImageError, dicom_header, is_dicom, read_dicom
from rofl.data.pixel_types import highest_8_bits
from rofl.data.regular_file import read_regular

MAX_PIXELS = 64_000_000  # declared pixels of one image; 8000 x 8000
_MAX_FILE_BYTES = 2**28  # of one encoded image
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "TIFF", "WEBP")  # PIL knows forty more, some of which run programs
_LARGE = 4_000_000  # pixels; images above are decoded one at a time, so that threads do not multiply their memory
_one_at_a_time = threading.Lock()
_MODES = {1: "L", 3: "RGB"}  # PIL's mode for a number of channels
_GREY_MODES = frozenset(("1", "L", "LA", "La", "I", "F"))  # and I;16 in its spellings
_ALPHA_MODES = frozenset(("LA", "La", "PA", "RGBa", "RGBA"))
_ARRAY_MODES = ("L", "LA", "RGB", "RGBA")  # of arrays with 1, 2, 3 and 4 channels


class ImageTooLargeError(Exception):
    """An image declares more pixels than are decoded."""


_REASONS: dict[type[Exception], str] = {
    ImageTooLargeError: "too large",
    Image.DecompressionBombError: "too large",
    Image.DecompressionBombWarning: "too large",
    UnidentifiedImageError: "not an image",
    FileNotFoundError: "not there",
    PermissionError: "not permitted",
}

_REFUSED_FILES = {errno.EFBIG: "too large", errno.EINVAL: "not a regular file", errno.EISDIR: "a folder"}


@dataclass(frozen=True)
class ImageInfo:
    """Digest and header of an image, known before it is decoded."""

    digest: str  # of the encoded bytes
    size: tuple[int, int] = (0, 0)  # width, height
    mode: str = ""  # PIL's mode
    error: str = ""  # why it cannot be read; empty if it can

    @property
    def grey(self) -> bool:
        """Whether the mode has no colour channels."""
        return self.mode in _GREY_MODES or self.mode.startswith("I;")


def inspect_image(image: Path | np.ndarray | bytes) -> ImageInfo:
    """Return the digest and the header of an image, without decoding its pixels.

    An unreadable file does not raise; the reason is in the result's `error`.
    """
    if isinstance(image, Path):
        try:
            stat = os.stat(image)
        except OSError as error:
            return ImageInfo("", error=describe_error(error))
        return _inspect_file(os.fspath(image), stat.st_size, stat.st_mtime_ns)
    if isinstance(image, bytes):
        return _inspect_bytes(image)
    mode = "L" if image.ndim == 2 else _ARRAY_MODES[image.shape[2] - 1]
    raw = f"{image.shape}|".encode() + np.ascontiguousarray(image).tobytes()
    return ImageInfo(hash_bytes(raw), (image.shape[1], image.shape[0]), mode)


@lru_cache(maxsize=1_000_000)  # cached for scan, load and report; a changed file has another size or time
def _inspect_file(path: str, size: int, modified_ns: int) -> ImageInfo:
    try:
        return _inspect_bytes(read_regular(path, _MAX_FILE_BYTES))
    except OSError as error:
        return ImageInfo("", error=describe_error(error))


def _inspect_bytes(raw: bytes) -> ImageInfo:
    digest = hash_bytes(raw)
    try:
        if is_dicom(raw):
            return ImageInfo(digest, *dicom_header(raw))
        with _open_encoded(raw) as image:
            return ImageInfo(digest, image.size, image.mode)
    except Exception as error:  # PIL passes on any error of its decoders: OSError, SyntaxError, struct.error, ...
        return ImageInfo(digest, error=describe_error(error))


def describe_error(error: Exception) -> str:
    """Return the reason why an image cannot be read, in a few words for the user."""
    if isinstance(error, UnsupportedImageError):
        return str(error)
    for kind, text in _REASONS.items():
        if isinstance(error, kind):
            return text
    if isinstance(error, OSError) and error.errno in _REFUSED_FILES:
        return _REFUSED_FILES[error.errno]
    return f"damaged ({type(error).__name__})"


def hash_bytes(raw: bytes) -> str:
    """Return a 128-bit digest in hexadecimal."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def decode_image(
    image: Path | bytes | np.ndarray | Image.Image, side: int | tuple[int, int], channels: int
) -> np.ndarray:
    """Decode an image to a square or to a given height and width; the aspect ratio is not kept.

    EXIF orientation is applied, transparent pixels become white, and grey with more than 8 bits is scaled by the bits
    in use.

    Args:
        image: a file or its content, a PIL image, or an array (H, W) or (H, W, C) of uint8 with C = 1, 2 (grey,
            alpha), 3 or 4 (colours, alpha).
        side: the height and width of the result in pixels, or one number for both.
        channels: 1 for grey, 3 for colours.

    Returns:
        The pixels, (height, width, channels) uint8.

    Raises:
        Exception: any error of PIL's decoders for a damaged file; `describe_error` turns it into words.
    """
    height, width = (side, side) if isinstance(side, int) else side
    if isinstance(image, Path | bytes):
        with _open_encoded(_content(image)) as opened:
            opened.draft(_MODES[channels], (width, height))  # a JPEG is decoded at 1/2, 1/4 or 1/8 of its size
            return _resize(ImageOps.exif_transpose(opened), height, width, channels)
    if isinstance(image, Image.Image):
        return _resize(ImageOps.exif_transpose(image), height, width, channels)
    return _resize(_from_array(image), height, width, channels)


def open_picture(image: Path | bytes | np.ndarray) -> Image.Image:
    """Decode an image in its own size for display: upright, 8-bit grey or RGB, without transparency.

    Raises:
        Exception: any error of PIL's decoders for a damaged file; `describe_error` turns it into words.
    """
    if isinstance(image, Path | bytes):
        with _open_encoded(_content(image)) as opened:
            plain = _without_alpha(ImageOps.exif_transpose(opened))
    else:
        plain = _without_alpha(_from_array(image))
    return plain.convert("L" if plain.mode in ("1", "L") else "RGB")


def is_grey(image: Path | bytes | np.ndarray, side: int) -> bool:
    """Return whether all pixels are grey, checked at a reduced size; True for an unreadable image."""
    try:
        pixels = decode_image(image, side, channels=3)
    except Exception:  # any error of PIL; it is reported when all images are decoded
        return True
    return bool((pixels == pixels[:, :, :1]).all())


def _content(image: Path | bytes) -> bytes:
    """Return the content of an image file."""
    return image if isinstance(image, bytes) else read_regular(image, _MAX_FILE_BYTES)


def _resize(image: Image.Image, height: int, width: int, channels: int) -> np.ndarray:
    """Return the pixels of a PIL image of any mode, (height, width, channels) uint8."""
    plain = _without_alpha(image).convert(_MODES[channels])
    return np.asarray(plain.resize((width, height), Image.Resampling.BILINEAR)).reshape(height, width, channels)


def _from_array(pixels: np.ndarray) -> Image.Image:
    """Return an array (H, W) or (H, W, C) of uint8 as a PIL image."""
    squeezed = pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels
    return Image.fromarray(np.ascontiguousarray(squeezed))


def _without_alpha(image: Image.Image) -> Image.Image:
    """Return an image of any mode in 8 bits, with transparent pixels in white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_to_uint8(np.asarray(image)))
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image


def _to_uint8(values: np.ndarray) -> np.ndarray:
    """Return grey of more than 8 bits as uint8: the highest 8 of the 8, 12, 16 or 32 bits that the image uses.

    Scanners write 12 bits into 16. Floating-point images are taken as 0..1 if no value is above 1, else as 0..255.
    """
    if values.dtype.kind == "f":
        finite = np.nan_to_num(values, posinf=0, neginf=0)
        scaled: np.ndarray = finite * (255 if finite.max(initial=0) <= 1 else 1)
        return scaled.clip(0, 255).astype(np.uint8)
    return highest_8_bits(values)


@contextmanager
def _open_encoded(raw: bytes) -> Iterator[Image.Image]:
    """Open an encoded image; its pixels are decoded lazily, inside the block.

    Args:
        raw: the content of the file.

    Raises:
        ImageTooLargeError: its header declares more than `MAX_PIXELS`.
        Exception: any error of PIL's decoders for another format or a damaged file.
    """
    if is_dicom(raw):
        size, _ = dicom_header(raw)
        _check_size(size)
        with _one_at_a_time if size[0] * size[1] > _LARGE else nullcontext():
            yield read_dicom(raw)
        return
    with Image.open(io.BytesIO(raw), formats=_FORMATS) as image:
        _check_size(image.size)
        pixels = image.width * image.height
        with _one_at_a_time if pixels > _LARGE else nullcontext():
            yield image


def _check_size(size: tuple[int, int]) -> None:
    if size[0] * size[1] > MAX_PIXELS:
        raise ImageTooLargeError(f"{size[0]} x {size[1]} pixels")
