"""Pictures small enough to lie in one page by the thousand."""

import base64
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch

from rofl.data.image_store import ImageStore

if TYPE_CHECKING:
    from PIL import Image

_BUDGET = 18_000_000  # characters for all pictures of a page; plotly and the text take another 6 million
_SHARP = 32  # pixels up to which a picture keeps every one of them
_EDGES = (96, 64, 48, 32)  # to which larger pictures are scaled down: the first that fits
_TRIED = 50  # pictures by which that is found out
_AT_ONCE = 500  # pictures in memory
_OPTIONS: dict[str, dict[str, int]] = {
    "PNG": {},
    "WEBP": {"quality": 80, "method": 2},  # the default, 4, takes nearly twice the time for a few per cent less
    "JPEG": {"quality": 75, "optimize": True},
}


class Thumbnails(NamedTuple):
    """Pictures in base64, all of one type."""

    kind: str  # "image/png"
    edge: int  # pixels of the longer side
    pictures: list[str]


class _Form(NamedTuple):
    format: str  # as PIL calls it
    edge: int


def thumbnails(images: ImageStore, rows: Sequence[int]) -> Thumbnails:
    """The images (N, C, H, W) of these rows, as large as the page can hold."""
    longest = max(images.shape[2:])
    forms = [_Form(_lossy(), min(edge, longest)) for edge in _EDGES]
    if longest <= _SHARP:
        forms.insert(0, _Form("PNG", longest))
    tried = rows[:: -(-len(rows) // _TRIED) or 1]
    for form in forms:
        size = sum(map(len, _encoded(images, tried, form))) / max(len(tried), 1)
        if size * len(rows) <= _BUDGET:
            break
    return Thumbnails(f"image/{form.format.lower()}", form.edge, list(_encoded(images, rows, form)))


def _lossy() -> str:
    """A format for photographs; WebP is half as large, and a PIL may have been built without it."""
    from PIL import features

    return "WEBP" if features.check("webp") else "JPEG"


def _encoded(images: ImageStore, rows: Sequence[int], form: _Form) -> Iterator[str]:
    for image in _opened(images, rows):
        image.thumbnail((form.edge, form.edge))
        file = io.BytesIO()
        image.save(file, form.format, **_OPTIONS[form.format])
        yield base64.b64encode(file.getvalue()).decode()


def _opened(images: ImageStore, rows: Sequence[int]) -> Iterator["Image.Image"]:
    from PIL import Image  # only the page needs it

    for start in range(0, len(rows), _AT_ONCE):
        pixels = images[torch.tensor(rows[start : start + _AT_ONCE])].permute(0, 2, 3, 1).contiguous()  # (B, H, W, C)
        for array in pixels.numpy():
            yield Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array)
