"""Small pictures, so that one page can hold thousands of them.

Images of up to 32 pixels keep every pixel (PNG). Larger images are scaled down and compressed. The more images there
are, the smaller they become, so that a page stays below about 25 MB and opens without delay.
"""

import base64
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from rofl.data.image_store import ImageStore

if TYPE_CHECKING:
    from PIL import Image

_BUDGET = 18_000_000  # characters for all pictures of a page; plotly and the text take another 6 million
_KEPT_WHOLE = 32  # pictures whose longer side has up to this many pixels keep every pixel
_EDGES = (96, 64, 48, 32)  # larger pictures are scaled down to the first of these that fits the budget
_SAMPLED = 50  # number of pictures from which the total size is estimated
_CHUNK = 500  # pictures in memory at once
_OPTIONS: dict[str, dict[str, int]] = {
    "PNG": {},
    "WEBP": {"quality": 80, "method": 2},  # the default, 4, takes nearly twice the time and saves a few per cent
    "JPEG": {"quality": 75, "optimize": True},
}


class Thumbnails(NamedTuple):
    """Pictures of one type and size."""

    media_type: str  # "image/png"
    edge: int  # pixels of the longer side
    pictures: list[str]  # base64


class _Encoding(NamedTuple):
    format: str  # as PIL names it
    edge: int


def thumbnails(images: ImageStore, rows: Sequence[int]) -> Thumbnails:
    """Encode images in the largest size that fits the page's budget.

    The encodings are tried best first. The total size is estimated from up to 50 images. Images are never enlarged.

    Args:
        images: (N, C, H, W) uint8, in memory or on disk.
        rows: the rows of the images to encode, in the order of the result.
    """
    longest = max(images.shape[2:])
    encodings = [_Encoding(_photo_format(), min(edge, longest)) for edge in _EDGES]
    if longest <= _KEPT_WHOLE:
        encodings.insert(0, _Encoding("PNG", longest))
    sampled = rows[:: -(-len(rows) // _SAMPLED) or 1]
    for encoding in encodings:
        mean_length = sum(map(len, _encode(images, sampled, encoding))) / max(len(sampled), 1)
        if mean_length * len(rows) <= _BUDGET:
            break  # if none fits, the last and smallest is used
    return Thumbnails(f"image/{encoding.format.lower()}", encoding.edge, list(_encode(images, rows, encoding)))


def _photo_format() -> str:
    """Return the format for photographs: WebP, which is half as large, or JPEG if PIL lacks WebP."""
    from PIL import features

    return "WEBP" if features.check("webp") else "JPEG"


def _encode(images: ImageStore, rows: Sequence[int], encoding: _Encoding) -> Iterator[str]:
    """Yield the images of these rows as base64 text."""
    for image in _load(images, rows):
        image.thumbnail((encoding.edge, encoding.edge))
        file = io.BytesIO()
        image.save(file, encoding.format, **_OPTIONS[encoding.format])
        yield base64.b64encode(file.getvalue()).decode()


def _load(images: ImageStore, rows: Sequence[int]) -> Iterator["Image.Image"]:
    """Yield the images of these rows as PIL images, loaded in chunks to bound memory."""
    from PIL import Image  # only the page needs it

    for start in range(0, len(rows), _CHUNK):
        chunk = torch.tensor(rows[start : start + _CHUNK])
        pixels = images[chunk].permute(0, 2, 3, 1).contiguous()  # (B, H, W, C)
        for array in pixels.numpy():
            yield Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
