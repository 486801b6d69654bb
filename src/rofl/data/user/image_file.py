"""One image of any kind: what its header says, and its pixels as a square of bytes."""

import hashlib
import io
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from rofl.data.user.samples import Content

_MODES = {1: "L", 3: "RGB"}
_GREY = frozenset(("1", "L", "LA", "La", "I", "F"))  # and I;16 in its spellings

_REASONS: dict[type[Exception], str] = {
    Image.DecompressionBombError: "too large",
    Image.DecompressionBombWarning: "too large",
    UnidentifiedImageError: "not an image",
    FileNotFoundError: "not there",
    PermissionError: "not permitted",
}


@dataclass(frozen=True)
class ImageInfo:
    """What is known of a sample without decoding it."""

    digest: str  # of its bytes
    size: tuple[int, int] = (0, 0)  # width, height
    mode: str = ""
    error: str = ""  # why it is no image, where it is none

    @property
    def grey(self) -> bool:
        """Whether the mode has no colours."""
        return self.mode in _GREY or self.mode.startswith("I;")


def inspect_image(content: Content) -> ImageInfo:
    """The digest and the header of a sample."""
    if isinstance(content, Path):
        try:
            facts = os.stat(content)
        except OSError as error:
            return ImageInfo("", error=reason(error))
        return _look_at_file(os.fspath(content), facts.st_size, facts.st_mtime_ns)
    if isinstance(content, tuple):
        return ImageInfo(_digest("\x1f".join(content).encode()))
    mode = "L" if content.ndim == 2 else ("L", "LA", "RGB", "RGBA")[content.shape[2] - 1]
    raw = f"{content.shape}|".encode() + np.ascontiguousarray(content).tobytes()
    return ImageInfo(_digest(raw), (content.shape[1], content.shape[0]), mode)


@lru_cache(maxsize=1_000_000)  # choosing, loading and the page all ask; a changed file has another size or time
def _look_at_file(path: str, size: int, changed: int) -> ImageInfo:
    digest = ""
    try:
        raw = Path(path).read_bytes()
        digest = _digest(raw)
        with Image.open(io.BytesIO(raw)) as image:
            return ImageInfo(digest, image.size, image.mode)
    except Exception as error:  # PIL raises what its decoders do: OSError, SyntaxError, struct.error, ...
        return ImageInfo(digest, error=reason(error))


def reason(error: Exception) -> str:
    """Why an image cannot be read, in words."""
    for kind, words in _REASONS.items():
        if isinstance(error, kind):
            return words
    return f"damaged ({type(error).__name__})"  # PIL raises what its decoders do


def decode_image(content: Path | np.ndarray, side: int, channels: int) -> np.ndarray:
    """The pixels as (side, side, C) uint8, squeezed to a square where they are none."""
    if isinstance(content, Path):
        with Image.open(content) as opened:
            opened.draft(_MODES[channels], (side, side))  # a JPEG is decoded at 1/2, 1/4 or 1/8 of its size
            return _square(ImageOps.exif_transpose(opened), side, channels)  # phones note which side is up
    plain = content[:, :, 0] if content.ndim == 3 and content.shape[2] == 1 else content
    return _square(Image.fromarray(np.ascontiguousarray(plain)), side, channels)


def is_grey(content: Path | np.ndarray, side: int) -> bool:
    """Whether an image that could have colours has none; what cannot be read speaks for nothing."""
    try:
        pixels = decode_image(content, side, channels=3)
    except Exception:  # as above; it is reported when all are decoded
        return True
    return bool((pixels == pixels[:, :, :1]).all())


def _square(image: Image.Image, side: int, channels: int) -> np.ndarray:
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_to_bytes(np.asarray(image)))
    if image.mode in ("LA", "La", "PA", "RGBa", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    small = image.convert(_MODES[channels]).resize((side, side), Image.Resampling.BILINEAR)
    return np.asarray(small).reshape(side, side, channels)


def _to_bytes(values: np.ndarray) -> np.ndarray:
    """Grey of more than 8 bits: the highest 8 of the 8, 12, 16 or 32 that an image uses (scanners use 12 of 16)."""
    if values.dtype.kind == "f":
        finite = np.nan_to_num(values, posinf=0, neginf=0)
        scaled: np.ndarray = finite * (255 if finite.max(initial=0) <= 1 else 1)
        return scaled.clip(0, 255).astype(np.uint8)
    bits = next(bits for bits in (8, 12, 16, 32) if int(values.max(initial=0)) < 1 << bits)
    highest: np.ndarray = values.clip(0) >> (bits - 8)
    return highest.astype(np.uint8)


def _digest(raw: bytes) -> str:
    return hashlib.blake2b(raw, digest_size=16).hexdigest()
