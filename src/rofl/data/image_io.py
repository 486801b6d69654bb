"""Reading of one image, a file or an array: what its header says, and its pixels as a square of bytes.

Published sets that are streamed from disk (`rofl.data.image_store`) and user data (`rofl.data.user`) are both decoded
here, so the same file gives the same pixels in both. This module imports PIL: workers whose images lie in memory must
not import it.
"""

import hashlib
import io
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

_MODES = {1: "L", 3: "RGB"}  # PIL's mode for a number of channels
_GREY_MODES = frozenset(("1", "L", "LA", "La", "I", "F"))  # and I;16 in its spellings
_ALPHA_MODES = frozenset(("LA", "La", "PA", "RGBa", "RGBA"))
_ARRAY_MODES = ("L", "LA", "RGB", "RGBA")  # of arrays with 1, 2, 3 and 4 channels

_REASONS: dict[type[Exception], str] = {
    Image.DecompressionBombError: "too large",
    Image.DecompressionBombWarning: "too large",
    UnidentifiedImageError: "not an image",
    FileNotFoundError: "not there",
    PermissionError: "not permitted",
}


@dataclass(frozen=True)
class ImageInfo:
    """What is known of a sample before it is decoded: its digest and its image header."""

    digest: str  # of the encoded bytes
    size: tuple[int, int] = (0, 0)  # width, height
    mode: str = ""  # PIL's mode
    error: str = ""  # why it cannot be read; empty where it can

    @property
    def grey(self) -> bool:
        """Whether the mode has no colour channels."""
        return self.mode in _GREY_MODES or self.mode.startswith("I;")


def inspect_image(image: Path | np.ndarray) -> ImageInfo:
    """Return the digest and the header of an image, without decoding its pixels.

    An unreadable file does not raise: the result's `error` says why.
    """
    if isinstance(image, Path):
        try:
            stat = os.stat(image)
        except OSError as error:
            return ImageInfo("", error=describe_error(error))
        return _inspect_file(os.fspath(image), stat.st_size, stat.st_mtime_ns)
    mode = "L" if image.ndim == 2 else _ARRAY_MODES[image.shape[2] - 1]
    raw = f"{image.shape}|".encode() + np.ascontiguousarray(image).tobytes()
    return ImageInfo(hash_bytes(raw), (image.shape[1], image.shape[0]), mode)


@lru_cache(maxsize=1_000_000)  # scan, load and report all ask; a changed file has another size or time
def _inspect_file(path: str, size: int, modified_ns: int) -> ImageInfo:
    digest = ""
    try:
        raw = Path(path).read_bytes()
        digest = hash_bytes(raw)
        with Image.open(io.BytesIO(raw)) as image:
            return ImageInfo(digest, image.size, image.mode)
    except Exception as error:  # PIL passes on whatever its decoders raise: OSError, SyntaxError, struct.error, ...
        return ImageInfo(digest, error=describe_error(error))


def describe_error(error: Exception) -> str:
    """Return the reason why an image cannot be read, in a few words for the user."""
    for kind, text in _REASONS.items():
        if isinstance(error, kind):
            return text
    return f"damaged ({type(error).__name__})"


def hash_bytes(raw: bytes) -> str:
    """Return a 128-bit digest in hexadecimal."""
    return hashlib.blake2b(raw, digest_size=16).hexdigest()


def decode_image(image: Path | np.ndarray, side: int, channels: int) -> np.ndarray:
    """Decode an image to a square of the given size; other aspect ratios are squeezed.

    EXIF orientation is applied, transparent pixels are put on white, and grey of more than 8 bits is scaled by the
    bits that the image uses.

    Args:
        image: a file, or an array (H, W) or (H, W, C) of uint8 with C = 1, 2 (grey, alpha), 3 or 4 (colours, alpha).
        side: the height and width of the result in pixels.
        channels: 1 for grey, 3 for colours.

    Returns:
        The pixels, (side, side, channels) uint8.

    Raises:
        Exception: whatever PIL's decoders raise for a damaged file; `describe_error` words it.
    """
    if isinstance(image, Path):
        with Image.open(image) as opened:
            opened.draft(_MODES[channels], (side, side))  # a JPEG is decoded at 1/2, 1/4 or 1/8 of its size
            return _to_square(ImageOps.exif_transpose(opened), side, channels)
    squeezed = image[:, :, 0] if image.ndim == 3 and image.shape[2] == 1 else image
    return _to_square(Image.fromarray(np.ascontiguousarray(squeezed)), side, channels)


def is_grey(image: Path | np.ndarray, side: int) -> bool:
    """Return whether all pixels are grey, judged at a reduced size; True for an image that cannot be read."""
    try:
        pixels = decode_image(image, side, channels=3)
    except Exception:  # whatever PIL raises; it is reported when all images are decoded
        return True
    return bool((pixels == pixels[:, :, :1]).all())


def _to_square(image: Image.Image, side: int, channels: int) -> np.ndarray:
    """Return the pixels of a PIL image of any mode, (side, side, channels) uint8."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_to_uint8(np.asarray(image)))
    if image.mode in _ALPHA_MODES or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    resized = image.convert(_MODES[channels]).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(resized).reshape(side, side, channels)


def _to_uint8(values: np.ndarray) -> np.ndarray:
    """Return grey of more than 8 bits as uint8: the highest 8 of the 8, 12, 16 or 32 bits that the image uses.

    Scanners write 12 bits into 16. Floating-point images are taken as 0..1 where no value is above 1, else as 0..255.
    """
    if values.dtype.kind == "f":
        finite = np.nan_to_num(values, posinf=0, neginf=0)
        scaled: np.ndarray = finite * (255 if finite.max(initial=0) <= 1 else 1)
        return scaled.clip(0, 255).astype(np.uint8)
    bits = next(bits for bits in (8, 12, 16, 32) if int(values.max(initial=0)) < 1 << bits)
    highest: np.ndarray = values.clip(0) >> (bits - 8)
    return highest.astype(np.uint8)
